#pragma once

#include <array>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// The rules by which the planner fills in `auto` values; planner/policies.h has them.
enum class Policy { measured, table, simple, flags, zero2 };

constexpr std::array<std::string_view, 5> names_of(Policy) {
  return {"measured", "table", "simple", "flags", "zero2"};
}

// Whether the times of a run are remembered for the next prediction.
enum class Learn { idle, always, never };

constexpr std::array<std::string_view, 3> names_of(Learn) {
  return {"idle", "always", "never"};
}

struct PlannerConfig {
  Policy policy = Policy::measured;
  Learn learn = Learn::idle;
  bool enable_distributed = true;
  bool enable_data_parallel = true;
};

template <typename Visitor>
void describe(PlannerConfig& c, Visitor& v) {
  v.field(
      "policy", c.policy,
      {.help = "How `auto` is filled in. measured: of what fits, the fastest by "
               "prediction; table: batches by the memory of a GPU; simple: "
               "data_parallel up to 4 GPUs, then ddp; flags: by the two knobs below; "
               "zero2: ZeRO-2 from 2 GPUs on. Knobs that are set are kept."});
  v.field("learn", c.learn,
          {.help = "Whether measured runs correct later predictions. idle: not if "
                   "other processes used more than a quarter of the cores.",
           .affects = Affects::output});
  v.field("enable_distributed", c.enable_distributed,
          {.help = "Of flags: several GPUs train with ddp.",
           .affects = Affects::speed,
           .needs = "planner.policy=flags"});
  v.field("enable_data_parallel", c.enable_data_parallel,
          {.help = "Of flags, without ddp: several GPUs train with data_parallel; "
                   "false: one trains alone.",
           .affects = Affects::speed,
           .needs = "planner.policy=flags and planner.enable_distributed=false"});
}

}  // namespace lockstep::config
