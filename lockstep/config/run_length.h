#pragma once

#include <cstdint>

#include "lockstep/config/config.h"

namespace lockstep::config {

// What an epoch is made of.
struct EpochOptions {
  std::int64_t batch = 1;          // global
  bool drop_last = false;          // no short batch at its end
  std::int64_t limit_batches = 0;  // 0: all
};

// Returns the samples of one epoch. Fault::config if there would be no batch.
std::int64_t samples_per_epoch(std::int64_t num_samples, const EpochOptions& options);

struct RunLength {
  std::int64_t steps = 1;  // that the schedule spans
  std::int64_t steps_per_epoch = 1;
  std::int64_t global_batch = 1;
  std::int64_t last_step = 0;  // after which it ends: train.fast_dev_run ends it early
};

// Returns how long a run over so many training samples is. REQUIRES: train.steps,
// train.epochs and batch.global are not auto.
RunLength run_length(const Config& config, std::int64_t num_samples);

}  // namespace lockstep::config
