#pragma once

#include <cstdint>

#include "lockstep/config/schedule.h"

namespace lockstep::optim::detail {

// A place on a curve, in the schedule's unit: steps or epochs.
struct Place {
  std::int64_t now = 0;
  std::int64_t warmup = 0;  // the curve begins here
  std::int64_t end = 1;     // the run ends before it
};

// The factor on the learning rate after the warm-up; plateau's is not a curve: 1.
double curve(const config::ScheduleConfig& config, const Place& place);

// How long wsd's rate falls.
std::int64_t decay_length(const config::ScheduleConfig& config, std::int64_t end);

}  // namespace lockstep::optim::detail
