#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"

namespace lockstep::hardware::detail {

// A device as libcuda counts it, after CUDA_VISIBLE_DEVICES. No context is made.
struct CudaDevice {
  std::string uuid;  // the hexadecimal part, without "GPU-" or "MIG-"
  std::optional<int> multiprocessors;
  std::optional<int> max_threads_per_block;
  std::optional<int> max_threads_per_multiprocessor;
  std::optional<std::int64_t> shared_memory_per_block_bytes;
  std::optional<std::int64_t> shared_memory_per_multiprocessor_bytes;
  std::optional<std::int64_t> l2_bytes;
  std::optional<int> memory_bus_bits;
};

// Returns nothing if libcuda is not there, does not start or can not tell UUIDs.
std::optional<std::vector<CudaDevice>> cuda_devices(const Path& root);

// Returns the hexadecimal part of either spelling, without "GPU-" or "MIG-".
std::string bare_uuid(const std::string& uuid);

}  // namespace lockstep::hardware::detail
