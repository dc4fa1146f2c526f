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
          {.help = "Activations of every n-th block of the model are computed again in "
                   "the backward pass instead of being kept; 1: of all, 0: of none. "
                   "The results are the same.",
           .range = between(0, 1000),
           .affects = Affects::speed});
  v.field("on_out_of_memory", c.on_out_of_memory,
          {.help = "retry: the step is done again in smaller pieces; stop: the run "
                   "ends.",
           .affects = Affects::speed});
  v.field("grow_after", c.grow_after,
          {.help = "Of retry: steps after which pieces are tried twice as large again, "
                   "up to batch.micro; 0: they stay small.",
           .range = count_from(0),
           .unit = Unit::steps,
           .affects = Affects::speed,
           .needs = "memory.on_out_of_memory=retry"});
  v.field("fraction", c.fraction,
          {.help = "The most of a GPU's memory that a rank may take.",
           .range = between(0.01, 1),
           .affects = Affects::speed,
           .needs = "parallel.device=cuda or memory.find_micro=true"});
  v.field("find_micro", c.find_micro,
          {.help = "Before the first step, find the largest micro-batch that fits by "
                   "trying, instead of batch.micro.",
           .affects = Affects::speed});
  v.field("target", c.target,
          {.help = "The share of the memory that a step with that micro-batch may "
                   "take.",
           .range = between(0.01, 1),
           .affects = Affects::speed,
           .needs = "memory.find_micro=true"});
  v.field("offload", c.offload,
          {.help = "Activations wait in the host's memory for the backward pass, not "
                   "in the GPU's. The results are the same. auto: where nothing else "
                   "fits.",
           .affects = Affects::speed});
  v.field("empty_cache_every", c.empty_cache_every,
          {.help = "Steps after which unused memory goes back to the GPU, for others "
                   "that share it; 0: it is kept.",
           .range = count_from(0),
           .unit = Unit::steps,
           .affects = Affects::speed,
           .needs = "parallel.device=cuda"});
  v.field("host_limit", c.host_limit,
          {.help = "The most bytes that tensors of the host may take in each process, "
                   "as if there were no more; 0: as many as there are.",
           .range = count_from(0),
           .unit = Unit::bytes,
           .affects = Affects::speed});
}

}  // namespace lockstep::config
