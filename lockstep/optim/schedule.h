#pragma once

#include <cstdint>

#include "lockstep/config/optim.h"
#include "lockstep/config/run_length.h"
#include "lockstep/config/schedule.h"
#include "lockstep/optim/state.h"

namespace lockstep::optim {

using config::RunLength;

// The learning rate of every step: optim.lr, scaled to the global batch by
// optim.lr_scaling, times a linear warm-up from 1 / (warm-up steps + 1), then times a
// curve from 1. Milestones and drops of step count from the start of the run, every
// other curve from the end of the warm-up.
class Schedule {
 public:
  // Throws Fault::config, with the arithmetic, if a part of the schedule would lie
  // beyond the end of the run.
  Schedule(const config::OptimConfig& optim, const config::ScheduleConfig& schedule,
           const RunLength& run);

  // `step` counts from 0 over the whole run, `epoch` is the one it belongs to.
  double lr(std::int64_t step, std::int64_t epoch) const;

  // Returns whether observe() changes something: plateau.
  bool observes() const noexcept { return config_.name == config::Schedule::plateau; }
  // Takes the metric of an evaluation, the same on every rank. A NaN is no progress.
  void observe(double metric);

  // Returns numbers for checkpoints, as tensors without dimension. Empty unless
  // observes().
  NamedTensors state() const;
  void load(const NamedTensors& state);
  // Forgets what observe() has seen, but not what the rate has come to: another metric
  // is observed from now on.
  void forget_observed();

 private:
  bool is_progress(double metric) const;

  config::ScheduleConfig config_;
  RunLength run_;
  double base_lr_;
  std::int64_t warmup_steps_;
  // The state of plateau.
  double ratio_ = 1;
  double best_;
  std::int64_t num_bad_ = 0;
  std::int64_t num_cooling_ = 0;
};

}  // namespace lockstep::optim
