#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace lockstep::memory {

// The memory of a rank's device: a GPU's as LibTorch's allocator knows it, or on the
// host that of the process.
struct DeviceMemory {
  std::int64_t allocated_bytes = 0;  // by tensors
  std::int64_t reserved_bytes = 0;   // held by the process, for tensors to come, too
  std::int64_t total_bytes = 0;      // of the device
  std::int64_t peak_bytes = 0;       // the most that was allocated so far
};
DeviceMemory memory_of(const torch::Device& device);

// Limits tensors of this process to such a fraction of a GPU's memory.
void limit_device_memory(const torch::Device& device, double fraction);

}  // namespace lockstep::memory
