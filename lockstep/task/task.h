#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <c10/util/SmallVector.h>
#include <torch/torch.h>

#include "lockstep/data/named.h"
#include "lockstep/task/metric.h"

namespace lockstep::task {

// A loss that a task computes.
struct LossSpec {
  std::string name = "loss";
  double coefficient = 1;       // its part in what is trained
  std::int64_t per_sample = 1;  // targets of a sample, if all of them count
};

// The metric that everything that watches a run follows.
struct Primary {
  std::string name;  // of a value of metrics(), or "loss", or "loss_<name>" of several
  Better better = Better::more;
};

// The properties of a pass beside its tensors.
struct Pass {
  bool training = true;  // class weights and label smoothing count only then
  torch::Dtype dtype = torch::kFloat32;  // in which losses are summed
};

// Scalars in the order of losses(), on the device.
using Sums = c10::SmallVector<torch::Tensor, 4>;

// Computes losses and metrics from a model's outputs and a batch, and names the primary
// metric. It knows nothing of ranks, shares and micro-batches: a loss is a sum over the
// targets that count, which the step divides by the weight of all targets of the global
// batch. So padding, missing labels and unequal shares are right by construction.
//
// A task of your own is a class like those in classification.cpp.
//
// Threads: const functions by several at once.
class Task {
 public:
  virtual ~Task() = default;

  virtual std::string_view name() const noexcept = 0;  // "classification"

  // Returns the losses in a fixed order, the same on every rank.
  virtual const std::vector<LossSpec>& losses() const noexcept = 0;

  // Returns the tensors of a batch that it uses; others are not copied to the device
  // for it.
  virtual std::vector<std::string> fields() const { return {"target"}; }

  // Returns the sum of each loss over the targets of the pass that count, with
  // gradients.
  virtual Sums sums(const Named& outputs, const Named& batch,
                    const Pass& pass) const = 0;

  // Returns the weight of these targets, from the batch alone: the number of those that
  // count, or the sum of their weights, as float64. Undefined where every target counts
  // as one: then no rank has to ask the others. Which are undefined depends on the kind
  // of the tensors only, so that all ranks come to the same.
  virtual Sums weights(const Named& batch, const Pass& pass) const;

  // Returns the targets, int64 and one after the other, if the only loss is a plain
  // cross-entropy of classes: a model may compute that one itself. Those that do not
  // count are -1. Undefined: the loss is another one, or has weights.
  virtual torch::Tensor plain_targets(const Named& batch) const;

  // Returns the part of a loss in what is trained, in a step that counts from 0.
  virtual double coefficient(std::size_t loss, std::int64_t step) const;

  // The number of sums that are kept while training, beside the losses, for the
  // console. Each pass adds to `sums`, a float64 tensor on the device of this size.
  virtual std::int64_t num_training_sums() const noexcept { return 0; }
  virtual void add_training_sums(const Named& outputs, const Named& batch,
                                 torch::Tensor& sums) const;
  // Returns their values; `count` is the number of targets, as losses()[0] counts them.
  virtual std::vector<MetricValue> training_values(const double* sums,
                                                   double count) const;

  // Returns the metrics of an evaluation, beside the losses.
  virtual MetricSet metrics() const { return {}; }

  virtual Primary primary() const { return {"loss", Better::less}; }
};

}  // namespace lockstep::task
