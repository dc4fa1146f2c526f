#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/task/fields.h"
#include "lockstep/task/task.h"

namespace lockstep::task {

// A task with any number of labels for each sample, each present or not.
//
// The output is (B, labels) or (B, ..., labels) scores, whose sigmoid is a probability.
// The target is of the same shape: 0 or 1, -1 where it is uncertain and NaN where it is
// missing. Primary: the mean over labels of the area under the ROC curve.
struct MultiLabelOptions {
  Fields fields = {};
  BinaryCrossEntropyOptions loss = {};
  std::int64_t num_labels = 1;
  std::int64_t per_sample = 1;  // targets of a sample: num_labels, or so many for each
                                // of its positions
  bool trains_metrics = true;   // accuracy while training
  MetricChoice measured = {};
};

// Throws Fault::config for metrics that labels do not have.
std::shared_ptr<Task> make_multi_label(const MultiLabelOptions& options);

}  // namespace lockstep::task
