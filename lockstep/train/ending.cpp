#include "lockstep/train/ending.h"

#include <algorithm>
#include <optional>
#include <string_view>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/train/early_stop.h"

namespace lockstep::train {
namespace {

double lr_at(const optim::Schedule& schedule, std::int64_t step,
             const optim::RunLength& length) {
  return schedule.lr(step, step / std::max<std::int64_t>(1, length.steps_per_epoch));
}

// Returns the schedule of a run of that length; none where it would be refused.
std::optional<optim::Schedule> make_schedule(const RateKnobs& knobs,
                                             optim::RunLength length,
                                             std::int64_t steps) {
  length.steps = steps;
  try {
    return optim::Schedule(knobs.optim, knobs.schedule, length);
  } catch (const Error&) {
    return std::nullopt;
  }
}

}  // namespace

std::string early_stop_knobs(const config::EarlyStopConfig& config) {
  return str("patience ", config.patience, ", metric ", config.metric, ", min_delta ",
             config.min_delta, ", mode ", config::name_of(config.mode), ", divergence ",
             config.divergence);
}

bool watched_the_same(const RunState& at, const Watched& watched) {
  const auto metric_in = [](const std::string& knobs) -> std::string {
    constexpr std::string_view kBefore = "metric ";
    const auto begin = knobs.find(kBefore);
    if (begin == std::string::npos) return "";
    const auto first = begin + kBefore.size();
    return knobs.substr(first, knobs.find(',', first) - first);
  };
  const auto meant = [](const std::string& metric, const std::string& primary) {
    return metric == "auto" ? primary : metric;
  };
  return meant(metric_in(at.early_stop),
               at.primary.empty() ? watched.primary : at.primary) ==
         meant(watched.config.metric, watched.primary);
}

std::string why_over(const RunState& at, const Watched& watched,
                     std::int64_t last_step) {
  const bool early = !at.ended_early.empty();
  if (at.steps >= last_step) {
    return early ? at.ended_early : str("all ", last_step, " steps are done");
  }
  if (!early || last_step > at.last_step) return "";
  if (!at.early_stop.empty() && !watched_the_same(at, watched)) return "";
  EarlyStop still(watched.config, {});
  still.restore(at.best, at.waited);
  const bool as_before = early_stop_knobs(watched.config) == at.early_stop;
  return as_before || still.is_over() ? at.ended_early : "";
}

std::string about_schedule(const RunState& at, const RateKnobs& knobs,
                           const optim::RunLength& length) {
  if (at.last_step == 0 || at.last_step == length.steps || at.steps == 0) return "";
  const auto then = make_schedule(knobs, length, at.last_step);
  const auto now = make_schedule(knobs, length, length.steps);
  if (!then || !now) return "";
  constexpr std::int64_t kLooks = 256;
  const auto apart = std::max<std::int64_t>(1, at.steps / kLooks);
  for (std::int64_t step = 0; step < at.steps; step += apart) {
    if (lr_at(*then, step, length) == lr_at(*now, step, length)) continue;
    return fmt::format(
        "schedule.name: {} spans the whole run, which was of {} steps so far and is of "
        "{} from here on: the learning rate was {:.4g} in step {} and is {:.4g} in "
        "step {}. A run of {} steps from its beginning would have ended with other "
        "weights",
        config::name_of(knobs.schedule.name), at.last_step, length.steps,
        lr_at(*then, at.steps - 1, length), at.steps, lr_at(*now, at.steps, length),
        at.steps + 1, length.steps);
  }
  return "";
}

}  // namespace lockstep::train
