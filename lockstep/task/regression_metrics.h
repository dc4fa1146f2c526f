#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/config/eval.h"
#include "lockstep/task/metric.h"

namespace lockstep::task {

// Makes the metrics of eval.metrics, for numbers: outputs and targets of one shape,
// `num_values` of them for each sample. r2 is the mean over these of each one's. Throws
// Fault::config for one that numbers do not have.
MetricList make_regression_metrics(const std::vector<config::EvalMetric>& wanted,
                                   std::int64_t num_values);

}  // namespace lockstep::task
