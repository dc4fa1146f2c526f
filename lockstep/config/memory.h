#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lockstep/config/auto.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class OnOutOfMemory { retry, stop };

constexpr std::array<std::string_view, 2> names_of(OnOutOfMemory) {
  return {"retry", "stop"};
}

struct MemoryConfig {
  Auto<int> recompute_every;
  OnOutOfMemory on_out_of_memory = OnOutOfMemory::retry;
  double fraction = 0.9;
  Auto<bool> find_micro;
  double target = 0.8;
  Auto<bool> offload;
  std::int64_t empty_cache_every = 0;
  std::int64_t host_limit = 0;
  std::int64_t grow_after = 0;
};

template <typename Visitor>
void describe(MemoryConfig& c, Visitor& v) {
  v.field("recompute_every", c.recompute_every,
          {.help = "Activation (gradient) checkpointing: activations of every n-th "
                   "block are recomputed in the backward pass instead of kept; 1: "
                   "every block, 0: off. The results are the same.",
           .range = between(0, 1000),
           .affects = Affects::speed});
  v.field("on_out_of_memory", c.on_out_of_memory,
          {.help = "On out-of-memory: retry the step with smaller micro-batches, or "
                   "stop the run.",
           .affects = Affects::speed});
  v.field("grow_after", c.grow_after,
          {.help = "Of retry: steps after which micro-batches are doubled again, up to "
                   "batch.micro; 0: they stay small.",
           .range = count_from(0),
           .unit = Unit::steps,
           .affects = Affects::speed,
           .needs = "memory.on_out_of_memory=retry"});
  v.field("fraction", c.fraction,
          {.help = "The largest fraction of a GPU's memory that a rank may use.",
           .range = between(0.01, 1),
           .affects = Affects::speed,
           .needs = "parallel.device=cuda or memory.find_micro=true"});
  v.field("find_micro", c.find_micro,
          {.help = "Before the first step, find the largest micro-batch that fits by "
                   "trial steps, instead of batch.micro.",
           .affects = Affects::speed});
  v.field("target", c.target,
          {.help = "The fraction of memory that a step with that micro-batch may use.",
           .range = between(0.01, 1),
           .affects = Affects::speed,
           .needs = "memory.find_micro=true"});
  v.field("offload", c.offload,
          {.help = "Activation offloading: activations are kept in host memory until "
                   "the backward pass. The results are the same. auto: only where "
                   "nothing else fits.",
           .affects = Affects::speed});
  v.field("empty_cache_every", c.empty_cache_every,
          {.help = "Steps between two calls of empty_cache(), for processes that share "
                   "the GPU; 0: never.",
           .range = count_from(0),
           .unit = Unit::steps,
           .affects = Affects::speed,
           .needs = "parallel.device=cuda"});
  v.field("host_limit", c.host_limit,
          {.help = "Limit of the bytes of CPU tensors in each process, as if there "
                   "were no more memory; 0: no limit.",
           .range = count_from(0),
           .unit = Unit::bytes,
           .affects = Affects::speed});
}

}  // namespace lockstep::config
