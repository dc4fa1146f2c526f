#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"

namespace lockstep::hardware {

struct GpuWish {
  bool only_free = false;  // no process computes on it
  std::int64_t min_memory_bytes = 0;
  std::optional<int> count;  // empty: all that will do
};

struct GpuChoice {
  std::vector<int> chosen;  // by Gpu::index, best first
  struct Rejected {
    int index = 0;
    std::string reason;
  };
  std::vector<Rejected> rejected;  // unfit ones, not those beyond `count`
};

// Returns the best GPUs of a machine that inspect() has described: most free memory
// (differences below 2 % do not count), then least used, then best linked to each
// other.
GpuChoice choose_gpus(const Machine& machine, const GpuWish& wish);

// Returns the value of CUDA_VISIBLE_DEVICES that selects these: numbers as nvidia-smi
// counts, or UUIDs where CUDA could count differently (unlike GPUs, instances, some
// that are lost or hidden) or `uuids` asks.
std::string visible_devices(const Machine& machine, const std::vector<int>& chosen,
                            bool uuids = false);

}  // namespace lockstep::hardware
