#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/config.h"
#include "lockstep/precision/policy.h"

namespace lockstep::train {

// The device of a recipe without `auto`, for the rank that is `local_rank` on this
// machine. Throws Fault::hardware if it is not there,
// with the likely cause.
torch::Device choose_device(const config::ParallelConfig& config, int local_rank = 0);

// The devices of data_parallel's replicas, in the order of the ranks.
std::vector<torch::Device> choose_devices(const config::ParallelConfig& config);

// Their numbers as CUDA counts; none for CPUs.
std::vector<int> gpu_numbers(const std::vector<torch::Device>& devices);

// MKL's vector functions choose their code in their first call. When several threads
// make it at once, one of them may get a version that is good to five digits only (seen
// on an Intel Xeon with tanh: 6 of 160 processes). So one thread calls them first.
void choose_vector_code();

// Of a GPU's memory, tensors of this process take at most such a part.
void limit_device_memory(const torch::Device& device, double fraction);

// What names no device goes to this one, and no other gets a context.
void make_current(const torch::Device& device);

// Sets what is process-wide (seed, precision, determinism) and what is the calling
// thread's (threads inside an operation, current device), and returns the device with
// its precision. Called by each rank before it makes a tensor, by one at a time.
precision::Policy set_up_process(const config::Config& config,
                                 const torch::Device& device);

}  // namespace lockstep::train
