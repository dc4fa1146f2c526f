#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::optim {

double lr_factor(const config::ScheduleConfig& config, std::int64_t step,
                 std::int64_t total_steps) {
  if (step < config.warmup_steps) {
    return static_cast<double>(step + 1) / static_cast<double>(config.warmup_steps + 1);
  }
  const auto length = std::max<std::int64_t>(total_steps - config.warmup_steps, 1);
  const double done = std::min(
      static_cast<double>(step - config.warmup_steps) / static_cast<double>(length),
      1.0);
  double left = 1;
  switch (config.name) {
    case config::Schedule::constant:
      return 1;
    case config::Schedule::linear:
      left = 1 - done;
      break;
    case config::Schedule::cosine:
      left = 0.5 * (1 + std::cos(std::numbers::pi * done));
      break;
  }
  return config.final_ratio + (1 - config.final_ratio) * left;
}

}  // namespace lockstep::optim
