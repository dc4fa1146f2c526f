#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/task/fields.h"
#include "lockstep/task/task.h"

namespace lockstep::task {

// A task that predicts numbers. The output has as many as the target, (B) or (B, ...).
// Primary: the square root of the mean squared error if that is the loss, else the mean
// absolute error.
struct RegressionOptions {
  Fields fields = {};
  RegressionLossOptions loss = {};
  std::int64_t num_values = 1;  // that r2 tells apart
  std::int64_t per_sample = 1;  // targets of a sample
  MetricChoice measured = {};
};

// Throws Fault::config for metrics that numbers do not have.
std::shared_ptr<Task> make_regression(const RegressionOptions& options);

}  // namespace lockstep::task
