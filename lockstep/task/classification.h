#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/task/fields.h"
#include "lockstep/task/task.h"

namespace lockstep::task {

// One class of several for each sample, or for each of its tokens.
//
// The output is (B, classes) or (B, T, classes) scores. The target is (B) or (B, T)
// whole numbers, or shares of classes, (B, classes). Primary: accuracy.
struct ClassificationOptions {
  Fields fields = {};
  CrossEntropyOptions loss = {};
  std::int64_t num_classes = 0;  // 0: any; some metrics have to know
  std::int64_t per_sample = 1;   // targets of a sample
  bool trains_metrics = true;    // accuracy while training
  MetricChoice measured = {};
};

// Throws Fault::config for metrics that classes do not have.
std::shared_ptr<Task> make_classification(const ClassificationOptions& options);

}  // namespace lockstep::task
