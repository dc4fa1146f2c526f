#pragma once

#include <cstdint>

#include "lockstep/config/schedule.h"

namespace lockstep::optim {

// The factor on optim.lr for `step` (0 is the first) of `total_steps`: a linear warm-up
// from 1/(warmup_steps + 1), then the named curve from 1 down to final_ratio.
double lr_factor(const config::ScheduleConfig& config, std::int64_t step,
                 std::int64_t total_steps);

}  // namespace lockstep::optim
