#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/config/eval.h"
#include "lockstep/task/metric.h"

namespace lockstep::task {

// How many labels are right, where a score above 0 says that one is there, and how many
// count: (2) float64.
torch::Tensor right_labels(const Answers& answers);

// Accuracy, then those of eval.metrics, for scores of labels: (N, labels), targets the
// same. Throws Fault::config for one that labels do not have.
MetricList make_label_metrics(const std::vector<config::EvalMetric>& wanted,
                              std::int64_t num_labels);

}  // namespace lockstep::task
