#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "lockstep/config/config.h"
#include "lockstep/precision/policy.h"

namespace lockstep::train {

// The device of a recipe without `auto`, for the rank that is `local_rank` on this
// machine. Throws Fault::hardware if it is not there,
// with the likely cause.
torch::Device choose_device(const config::ParallelConfig& config, int local_rank = 0);

// What names no device goes to this one, and no other gets a context.
void make_current(const torch::Device& device);

// Sets what is process-wide (threads, seed, precision, determinism) and returns the
// device with its precision. Called once, before any tensor is made.
precision::Policy set_up_process(const config::Config& config,
                                 const torch::Device& device);

// Memory in use: what the device's allocator handed out, or the process on a CPU.
std::int64_t memory_in_use_bytes(const torch::Device& device);

}  // namespace lockstep::train
