#include "lockstep/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/optim/detail/curve.h"

namespace lockstep::optim {
namespace {

using config::ScheduleConfig;
using config::ScheduleUnit;

double scaled_lr(const config::OptimConfig& optim, std::int64_t global_batch) {
  const double times =
      static_cast<double>(global_batch) / static_cast<double>(optim.base_batch);
  switch (optim.lr_scaling) {
    case config::LrScaling::none:
      return optim.lr;
    case config::LrScaling::linear:
      return optim.lr * times;
    case config::LrScaling::sqrt:
      return optim.lr * std::sqrt(times);
  }
  return optim.lr;
}

std::int64_t warmup_steps(const ScheduleConfig& config, const RunLength& run) {
  if (config.warmup_epochs == 0) return config.warmup_steps;
  return std::llround(config.warmup_epochs * static_cast<double>(run.steps_per_epoch));
}

std::int64_t in_epochs(std::int64_t steps, const RunLength& run) {
  return (steps + run.steps_per_epoch - 1) / run.steps_per_epoch;
}

// Returns the length of the run in the schedule's unit.
std::int64_t schedule_end(const ScheduleConfig& config, const RunLength& run) {
  return config.unit == ScheduleUnit::step ? run.steps : in_epochs(run.steps, run);
}

std::string arithmetic(const RunLength& run) {
  if (run.steps % run.steps_per_epoch != 0) {
    return str("the run has ", run.steps, " steps, ", run.steps_per_epoch, " an epoch");
  }
  return str("the run has ", run.steps / run.steps_per_epoch, " epochs * ",
             run.steps_per_epoch, " steps = ", run.steps, " steps");
}

void check_warmup(const ScheduleConfig& config, const RunLength& run,
                  std::int64_t warmup) {
  if (warmup <= run.steps) return;
  if (config.warmup_epochs > 0) {
    throw Error(Fault::config, "schedule.warmup_epochs: ", config.warmup_epochs,
                " epochs * ", run.steps_per_epoch, " steps = ", warmup,
                " steps of warm-up, but ", arithmetic(run),
                "; shorten the warm-up or train longer");
  }
  throw Error(Fault::config, "schedule.warmup_steps: ", warmup,
              " steps of warm-up, but ", arithmetic(run),
              "; shorten the warm-up or train longer");
}

// Checks that a drop at one point comes before the end.
struct DropPoint {
  std::string_view knob;
  std::int64_t at = 0;
};
void check_point(const ScheduleConfig& config, const RunLength& run,
                 const DropPoint& point) {
  if (point.at < schedule_end(config, run)) return;
  throw Error(Fault::config, point.knob, ": the rate would drop at ",
              name_of(config.unit), " ", point.at, ", counted from 0, but ",
              arithmetic(run), "; leave it out earlier or train longer");
}

void check_fits(const ScheduleConfig& config, const RunLength& run,
                std::int64_t warmup) {
  check_warmup(config, run, warmup);
  if (config.name == config::Schedule::step) {
    check_point(config, run, {"schedule.step_size", config.step_size});
  }
  if (config.name == config::Schedule::multi_step) {
    check_point(config, run, {"schedule.milestones", config.milestones.back()});
  }
  if (config.name != config::Schedule::wsd) return;
  const auto end = schedule_end(config, run);
  const auto decay = detail::decay_length(config, end);
  const auto rise = config.unit == ScheduleUnit::step ? warmup : in_epochs(warmup, run);
  if (rise + decay <= end) return;
  throw Error(Fault::config, "schedule.decay_share: warm-up ", rise, " + decay ", decay,
              " (", config.decay_share, " of ", end, ") = ", rise + decay, " ",
              name_of(config.unit), "s, but ", arithmetic(run),
              "; shorten one of them or train longer");
}

double worst(config::Goal goal) {
  const double inf = std::numeric_limits<double>::infinity();
  return goal == config::Goal::max ? -inf : inf;
}

}  // namespace

Schedule::Schedule(const config::OptimConfig& optim, const ScheduleConfig& schedule,
                   const RunLength& run)
    : config_(schedule),
      run_(run),
      base_lr_(scaled_lr(optim, run.global_batch)),
      warmup_steps_(warmup_steps(schedule, run)),
      best_(worst(schedule.goal)) {
  check_fits(config_, run_, warmup_steps_);
}

double Schedule::lr(std::int64_t step, std::int64_t epoch) const {
  if (step < warmup_steps_) {
    return base_lr_ * ratio_ *
           (static_cast<double>(step + 1) / static_cast<double>(warmup_steps_ + 1));
  }
  const bool by_step = config_.unit == ScheduleUnit::step;
  const double factor = detail::curve(
      config_, {.now = by_step ? step : epoch,
                .warmup = by_step ? warmup_steps_ : in_epochs(warmup_steps_, run_),
                .end = schedule_end(config_, run_)});
  return base_lr_ * ratio_ * factor;
}

bool Schedule::is_progress(double metric) const {
  if (config_.goal == config::Goal::max)
    return metric > best_ * (1 + config_.threshold);
  return metric < best_ * (1 - config_.threshold);
}

void Schedule::observe(double metric) {
  if (!observes()) return;
  if (is_progress(metric)) {
    best_ = metric;
    num_bad_ = 0;
  } else {
    ++num_bad_;
  }
  if (num_cooling_ > 0) {
    --num_cooling_;
    num_bad_ = 0;
  }
  if (num_bad_ <= config_.patience) return;
  ratio_ = std::max(ratio_ * config_.gamma, config_.final_ratio);
  num_cooling_ = config_.cooldown;
  num_bad_ = 0;
}

NamedTensors Schedule::state() const {
  if (!observes()) return {};
  const auto number = [](double value) {
    return torch::tensor(value, torch::kFloat64);
  };
  return {{"ratio", number(ratio_)},
          {"best", number(best_)},
          {"bad", number(static_cast<double>(num_bad_))},
          {"cooling", number(static_cast<double>(num_cooling_))}};
}

void Schedule::load(const NamedTensors& state) {
  auto own = this->state();
  copy_state(own, state, "schedule");
  if (own.empty()) return;
  ratio_ = own[0].second.item<double>();
  best_ = own[1].second.item<double>();
  num_bad_ = own[2].second.item<std::int64_t>();
  num_cooling_ = own[3].second.item<std::int64_t>();
}

void Schedule::forget_observed() {
  best_ = worst(config_.goal);
  num_bad_ = 0;
}

}  // namespace lockstep::optim
