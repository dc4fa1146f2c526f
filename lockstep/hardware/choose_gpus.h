#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"

namespace lockstep::hardware {

struct GpuWish {
  bool only_free = false;  // nobody computes on it
  std::int64_t min_memory_bytes = 0;
  std::optional<int> count;  // nothing: all that will do
};

struct GpuChoice {
  std::vector<int> chosen;  // by Gpu::index, best first
  struct Rejected {
    int index = 0;
    std::string reason;
  };
  std::vector<Rejected> rejected;  // unfit ones, not those beyond `count`
};

// The best of a machine that inspect() has described: most free memory (differences
// below 2 % do not count), then least used, then best linked to each other.
GpuChoice choose_gpus(const Machine& machine, const GpuWish& wish);

// What CUDA_VISIBLE_DEVICES has to be to get these: numbers as nvidia-smi counts, or
// UUIDs where CUDA could count differently (unlike GPUs, instances, some that are lost
// or hidden) or `uuids` asks.
std::string visible_devices(const Machine& machine, const std::vector<int>& chosen,
                            bool uuids = false);

}  // namespace lockstep::hardware
