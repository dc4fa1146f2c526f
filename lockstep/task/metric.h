#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/data/named.h"

namespace lockstep::task {

// Tells which of two values is the better one.
enum class Better { less, more };

struct MetricValue {
  std::string name;  // "accuracy_top_5"
  double value = 0;
  Better better = Better::more;
  bool is_share = false;   // of 1: shown in percent
  bool is_detail = false;  // one of many, of a class for instance: not for the console
};

// The input of a metric from one forward pass, on the device.
struct Answers {
  torch::Tensor outputs;     // (N, classes) or (N, labels) scores, or (N, ...) values
  torch::Tensor targets;     // (N) int64, or of the shape of the outputs
  torch::Tensor valid = {};  // bool, of the shape of the targets; undefined: all count
  torch::Tensor bytes = {};  // of each target, where a metric is counted in them
};

// A number over the targets of an evaluation. It is kept as sums, which are added up
// over batches and ranks: each target counts once, whatever the shares are. A metric of
// your own is a class like those in class_metrics.cpp.
//
// Threads: one. Waits for the device in values() only, and in add() where scores are
// ranked, which are kept on the host.
class Metric {
 public:
  virtual ~Metric() = default;

  virtual void add(const Answers& answers) = 0;

  // Returns the values over the ranks of `cpu`. Collective: also by a rank that has
  // added nothing.
  virtual std::vector<MetricValue> values(comm::Communicator& cpu) = 0;
};

// Metrics whose sums are one tensor of float64.
class SumMetric : public Metric {
 public:
  void add(const Answers& answers) final;
  std::vector<MetricValue> values(comm::Communicator& cpu) final;

 protected:
  // Returns the sums that one pass adds, on the device; always of the same size.
  virtual torch::Tensor sums_of(const Answers& answers) const = 0;
  // Returns the size of the sums: values_of() gets so many zeros if there was no
  // target.
  virtual std::int64_t num_sums() const = 0;
  // Computes the values from the sums over everything, on the host.
  virtual std::vector<MetricValue> values_of(const torch::Tensor& sums) const = 0;

 private:
  torch::Tensor sums_;
};

using MetricList = std::vector<std::unique_ptr<Metric>>;

// The metrics of a task in an evaluation: lists of metrics, each with its input.
class MetricSet {
 public:
  using Answer = std::function<Answers(const Named& outputs, const Named& batch)>;

  // `prefix` comes before the names of their values: "vqa_".
  void add(MetricList metrics, Answer answer, std::string prefix = "");
  // Adds the metrics of a task which is part of another.
  void add(MetricSet other, const std::string& prefix);

  void observe(const Named& outputs, const Named& batch);
  // Collective.
  std::vector<MetricValue> values(comm::Communicator& cpu);

 private:
  struct Group {
    MetricList metrics;
    Answer answer;
    std::string prefix;
  };
  std::vector<Group> groups_;
};

}  // namespace lockstep::task
