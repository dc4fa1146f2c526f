#pragma once

#include <cstdint>

#include "lockstep/base/units.h"
#include "lockstep/config/auto.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// Training ends after `steps` or after `epochs`: one of them is a number above 0, and
// the planner sets the other to 0, which means "not the measure".
struct TrainConfig {
  Auto<std::int64_t> steps;
  Auto<std::int64_t> epochs;
  units::Duration max_time{0};
  std::int64_t log_every = 50;
  bool anomaly = false;
};

template <typename Visitor>
void describe(TrainConfig& c, Visitor& v) {
  v.field("steps", c.steps,
          {.help = "Optimizer steps to train for; 0: as many as train.epochs gives.",
           .range = count_from(0),
           .unit = Unit::steps});
  v.field("epochs", c.epochs,
          {.help = "Passes over the training samples; 0: train.steps decides.",
           .range = count_from(0),
           .unit = Unit::epochs});
  v.field("max_time", c.max_time,
          {.help = "Stop at the next step after this time; 0s: no limit."});
  v.field("log_every", c.log_every,
          {.help = "Steps between two lines of training metrics.",
           .range = count_from(1),
           .unit = Unit::steps,
           .affects = Affects::output});
  v.field("anomaly", c.anomaly,
          {.help = "Name the operation whose gradient is not finite; slow.",
           .affects = Affects::speed});
}

}  // namespace lockstep::config
