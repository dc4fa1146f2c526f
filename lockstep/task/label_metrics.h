#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/config/eval.h"
#include "lockstep/task/metric.h"

namespace lockstep::task {

// Returns how many labels are right, where a score above 0 predicts one, and how many
// count: (2) float64.
torch::Tensor right_labels(const Answers& answers);

// Makes accuracy, then the metrics of eval.metrics, for scores of labels: (N, labels),
// targets the same. Throws Fault::config for one that labels do not have.
MetricList make_label_metrics(const std::vector<config::EvalMetric>& wanted,
                              std::int64_t num_labels);

}  // namespace lockstep::task
