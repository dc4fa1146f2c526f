#pragma once

#include <cstdint>

#include "lockstep/config/auto.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// global = per_rank * ranks, per_rank = micro * accumulation. A recipe names any of
// them; those that it names must agree. With none of them, global is
// kDefaultGlobalBatch.
//
// Only `global` changes what is computed (design: the global batch is the unit of
// meaning); the others say how a share of it is worked off.
struct BatchConfig {
  Auto<std::int64_t> global;
  Auto<std::int64_t> per_rank;
  Auto<std::int64_t> accumulation;
  Auto<std::int64_t> micro;
  Auto<std::int64_t> eval;
};

inline constexpr std::int64_t kDefaultGlobalBatch = 128;
// Small enough that micro * accumulation * ranks can not overflow.
inline constexpr double kLargestBatch = 16777216;

template <typename Visitor>
void describe(BatchConfig& c, Visitor& v) {
  v.field("global", c.global,
          {.help = "Global batch size: samples of one optimizer step, over all ranks.",
           .range = between(1, kLargestBatch),
           .unit = Unit::samples});
  v.field("per_rank", c.per_rank,
          {.help = "Samples of one optimizer step on one rank: global / ranks.",
           .range = between(1, kLargestBatch),
           .unit = Unit::samples});
  v.field("accumulation", c.accumulation,
          {.help = "Gradient accumulation: micro-batches whose gradients are summed "
                   "into one optimizer step.",
           .range = between(1, kLargestBatch),
           .affects = Affects::speed});
  v.field("micro", c.micro,
          {.help = "Micro-batch size: samples of one forward and backward pass on a "
                   "rank: per_rank / accumulation.",
           .range = between(1, kLargestBatch),
           .unit = Unit::samples,
           .affects = Affects::speed});
  v.field("eval", c.eval,
          {.help = "Batch size of the evaluation, on one rank.",
           .range = between(1, kLargestBatch),
           .unit = Unit::samples,
           .affects = Affects::speed});
}

}  // namespace lockstep::config
