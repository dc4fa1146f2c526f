#pragma once

#include <cstdint>
#include <string>

#include "lockstep/config/config.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/train/run_state.h"

namespace lockstep::train {

// These decide whether a run that has come to its end has something left to do when it
// is started again. All ranks have the same numbers, so all decide alike.

// Returns the knobs of early stopping as text, for checkpoints.
std::string early_stop_knobs(const config::EarlyStopConfig& config);

// The evaluated value that a run is watched by.
struct Watched {
  const config::EarlyStopConfig& config;
  const std::string& primary;  // the task's metric, which "auto" stands for
};

// Returns whether the best value of a checkpoint is of the metric that is watched now:
// that of another metric says nothing.
bool watched_the_same(const RunState& at, const Watched& watched);

// Returns why the run that resumes from `at` is over; "" if it trains on: it is longer
// now, or was ended early by knobs that are others now and would not end it.
std::string why_over(const RunState& at, const Watched& watched,
                     std::int64_t last_step);

// The knobs that the learning rate follows.
struct RateKnobs {
  const config::OptimConfig& optim;
  const config::ScheduleConfig& schedule;
};

// Returns a note on the learning rate if the run has another length than when `at` was
// saved, and its schedule spans the whole run; "" if the steps so far would have been
// the same.
std::string about_schedule(const RunState& at, const RateKnobs& knobs,
                           const optim::RunLength& length);

}  // namespace lockstep::train
