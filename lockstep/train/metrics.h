#pragma once

#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/config/eval.h"

namespace lockstep::train {

struct MetricValue {
  std::string name;  // "accuracy_top_5"
  double value = 0;
};

// What a metric is given of one forward pass. The tensors are on the device, and of as
// many rows as there are targets.
struct Answers {
  torch::Tensor logits;   // (N, classes)
  torch::Tensor targets;  // (N) int64
};

// A number over the samples of an evaluation. It is kept as sums, which are added up
// over batches and ranks: each sample counts once, whatever the shares are. A metric of
// your own is a class like those in metrics.cpp.
//
// Threads: one. Waits for the device in values() only.
class Metric {
 public:
  virtual ~Metric() = default;

  virtual void add(const Answers& answers) = 0;

  // Over the ranks of `cpu`, the same on each. Collective.
  virtual std::vector<MetricValue> values(comm::Communicator& cpu) = 0;
};

// Metrics whose sums are one tensor of float64.
class SumMetric : public Metric {
 public:
  void add(const Answers& answers) final;
  std::vector<MetricValue> values(comm::Communicator& cpu) final;

 protected:
  // What one pass adds, on the device; always of the same size.
  virtual torch::Tensor sums_of(const Answers& answers) const = 0;
  // Of no sample at all: what values_of() gets if there was none.
  virtual std::int64_t num_sums() const = 0;
  // From the sums over everything, on the host.
  virtual std::vector<MetricValue> values_of(const torch::Tensor& sums) const = 0;

 private:
  torch::Tensor sums_;
};

// Those that eval.metrics names. Throws Fault::config for one that the number of
// classes does not allow.
std::vector<std::unique_ptr<Metric>> make_metrics(const config::EvalConfig& config,
                                                  std::int64_t num_classes);

}  // namespace lockstep::train
