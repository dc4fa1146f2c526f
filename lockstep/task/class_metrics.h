#pragma once

#include <cstdint>
#include <memory>

#include "lockstep/task/fields.h"
#include "lockstep/task/metric.h"

namespace lockstep::task {

std::unique_ptr<Metric> make_accuracy();
std::unique_ptr<Metric> make_perplexity();
std::unique_ptr<Metric> make_bits_per_byte();

// Makes the metrics of eval.metrics, for scores of classes: (N, classes), with targets
// (N). With two classes, auroc and average_precision are those of the second. Throws
// Fault::config for one that classes do not have, or that this number of classes does
// not allow; and in add(), for scores of another number of classes.
MetricList make_class_metrics(const MetricChoice& measured, std::int64_t num_classes);

}  // namespace lockstep::task
