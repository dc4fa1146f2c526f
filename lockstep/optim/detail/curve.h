#pragma once

#include <cstdint>

#include "lockstep/config/schedule.h"

namespace lockstep::optim::detail {

// A place on a curve, in the schedule's unit: steps or epochs.
struct CurvePoint {
  std::int64_t now = 0;
  std::int64_t warmup = 0;  // the curve begins here
  std::int64_t end = 1;     // the run ends before it
};

// Returns the factor on the learning rate after the warm-up; plateau's is not a curve:
// 1.
double curve(const config::ScheduleConfig& config, const CurvePoint& place);

// Returns the length of wsd's decay.
std::int64_t decay_length(const config::ScheduleConfig& config, std::int64_t end);

}  // namespace lockstep::optim::detail
