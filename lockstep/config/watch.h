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
          {.help = "A rank whose step takes longer is named as slow, and ended if it "
                   "does nothing: no CPU time, no I/O, no work of its GPU. 0s: ranks "
                   "are not watched.",
           .affects = Affects::speed});
  v.field("step_factor", c.step_factor,
          {.help = "The same for a step of this many times the usual one, where that "
                   "is longer.",
           .range = at_least(2),
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("step_timeout", c.step_timeout,
          {.help = "A step of a rank that does something is ended after this time, or "
                   "step_factor times the longest step of the run, where that is "
                   "longer; 0s: never.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("startup", c.startup,
          {.help = "From the start of a rank to its first step.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("first_step", c.first_step,
          {.help = "The first step, and the first one of every new shape: libraries "
                   "tune themselves in it.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("evaluation", c.evaluation,
          {.help = "One batch of an evaluation.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("saving", c.saving,
          {.help = "Writing weights or a checkpoint.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("loading", c.loading,
          {.help = "Waiting for one batch of data.",
           .affects = Affects::speed,
           .needs = "watch.step_floor>0"});
  v.field("straggler", c.straggler,
          {.help = "A rank that the others waited for during more than this share of "
                   "the time since the last report is named; 1: never.",
           .range = between(0, 1),
           .affects = Affects::output,
           .needs = "parallel.ranks>1"});
}

}  // namespace lockstep::config
