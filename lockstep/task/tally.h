#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"
#include "lockstep/task/task.h"

namespace lockstep::task {

// What came of some passes. A loss is the mean of those of the steps, each over the
// targets that count in it; a step weighs as many as it has targets, so that the last,
// short one weighs less.
struct Means {
  double loss = 0;                        // what is trained
  std::vector<task::MetricValue> values;  // each loss, if there are several; metrics
  std::int64_t count = 0;                 // of targets; in an evaluation of samples

  std::optional<double> find(std::string_view name) const;
};

// Sums over targets, kept on the device so that adding to them waits for nothing.
class Tally {
 public:
  Tally(std::shared_ptr<const task::Task> task, const torch::Device& device);

  // `total` is what was trained, `losses` each part of it, if there are several: sums
  // over `count` targets.
  void add(const torch::Tensor& total, const task::Sums& losses, std::int64_t count);
  // Where the task adds what it keeps while training.
  torch::Tensor& metrics() noexcept { return metrics_; }
  void reset();

  // What it holds, for a checkpoint: tensors that are its own.
  const torch::Tensor& sums() const noexcept { return sums_; }
  std::int64_t& count() noexcept { return count_; }

  // What is added from now on can be taken back.
  void remember();
  void rewind();
  // The sums only, and only if the number on their device is not 0.
  void rewind_if(const torch::Tensor& flag);

  // Waits for the device.
  Means means() const;
  double loss() const;  // of them, without the rest
  // Over the ranks of `cpu`. Collective.
  Means means(comm::Communicator& cpu) const;

 private:
  Means means_of(const torch::Tensor& sums, double count) const;

  std::shared_ptr<const task::Task> task_;
  torch::Tensor sums_;     // the loss, the parts of it if there are several, metrics
  torch::Tensor metrics_;  // their part of it
  std::int64_t count_ = 0;
  torch::Tensor remembered_sums_;
  std::int64_t remembered_count_ = 0;
};

}  // namespace lockstep::task
