#pragma once

#include "lockstep/base/units.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// The times after which a rank that makes no progress counts as hanging. The launcher
// watches the heartbeat of every rank.
struct WatchConfig {
  units::Duration step_floor = std::chrono::seconds(3);
  double step_factor = 5;
  units::Duration step_timeout = std::chrono::minutes(10);
  units::Duration startup = std::chrono::minutes(10);
  units::Duration first_step = std::chrono::minutes(10);
  units::Duration evaluation = std::chrono::minutes(5);
  units::Duration saving = std::chrono::minutes(10);
  units::Duration loading = std::chrono::minutes(5);
  double straggler = 0.1;
};

template <typename Visitor>
void describe(WatchConfig& c, Visitor& v) {
  v.field("step_floor", c.step_floor,
          {.help = "Timeout of a step: a rank whose step takes longer is reported as "
                   "slow, and killed if it is idle (no CPU time, no I/O, no GPU work). "
                   "0s: ranks are not watched.",
           .affects = Affects::speed});
  v.field(
      "step_factor", c.step_factor,
      {.help = "The same as a multiple of the usual step time, where that is longer.",
       .range = at_least(2),
       .affects = Affects::speed,
       .needs = "watch.step_floor>0"});
  v.field("step_timeout", c.step_timeout,
          {.help = "A rank that is busy in one step is killed after this time, or "
                   "after step_factor times the longest step of the run, where that is "
                   "longer; 0s: never.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("startup", c.startup,
          {.help = "Timeout from the start of a rank to its first step.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("first_step", c.first_step,
          {.help = "Timeout of the first step, and of the first one of every new "
                   "shape, in which libraries tune themselves.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("evaluation", c.evaluation,
          {.help = "Timeout of one batch of an evaluation.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("saving", c.saving,
          {.help = "Timeout of writing weights or a checkpoint.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("loading", c.loading,
          {.help = "Timeout of waiting for one batch of data.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field(
      "straggler", c.straggler,
      {.help = "Straggler threshold: report a rank that the others waited for during "
               "more than this fraction of the time since the last report; 1: never.",
       .range = between(0, 1),
       .affects = Affects::output,
       .needs = "parallel.ranks>1"});
}

}  // namespace lockstep::config
