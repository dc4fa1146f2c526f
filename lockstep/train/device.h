#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/config.h"
#include "lockstep/precision/policy.h"

namespace lockstep::train {

// Returns the device of a recipe without `auto`, for the rank that is `local_rank`
// on this machine. Throws Fault::hardware if it is not there, with the likely
// cause.
torch::Device choose_device(const config::ParallelConfig& config, int local_rank = 0);

// Returns the devices of data_parallel's replicas, in the order of the ranks.
std::vector<torch::Device> choose_devices(const config::ParallelConfig& config);

// Returns their CUDA device indices; none for CPUs.
std::vector<int> gpu_numbers(const std::vector<torch::Device>& devices);

// MKL's vector functions choose their code in their first call. When several threads
// make it at once, one of them may get a version that is good to five digits only (seen
// on an Intel Xeon with tanh: 6 of 160 processes). So one thread calls them first.
void choose_vector_code();

// Makes this the current CUDA device: no other device gets a context.
void make_current(const torch::Device& device);

// Sets what is process-wide (seed, precision, determinism) and what is the calling
// thread's (threads inside an operation, current device), and returns the device with
// its precision. Called by each rank before it makes a tensor, by one at a time.
precision::Policy set_up_process(const config::Config& config,
                                 const torch::Device& device);

}  // namespace lockstep::train
