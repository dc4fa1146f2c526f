#pragma once

#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/task/fields.h"
#include "lockstep/task/task.h"

namespace lockstep::task::detail {

inline constexpr bool kDetail = true;  // MetricValue::is_detail

double ratio(double part, double whole);  // 0 if `whole` is 0

// Returns NaN where an evaluation had nothing to measure. A 0 could be the best that
// was ever seen.
double mean_or_nan(double total, double count);

// Throws Fault::config where a model scores another number of classes or labels
// (`kind`) than a metric counts: answers would be counted in the place of others.
void check_columns(const torch::Tensor& scores, std::int64_t expected,
                   std::string_view kind);

// A tensor of a task on the devices that need it: copied once to each device, since a
// copy waits for the device.
//
// Threads: any.
class DeviceCopies {
 public:
  explicit DeviceCopies(torch::Tensor tensor) : original_(std::move(tensor)) {}

  torch::Tensor on(const torch::Device& device) const;

 private:
  torch::Tensor original_;
  mutable std::mutex mutex_;  // guards copies_
  mutable std::vector<torch::Tensor> copies_;
};

// The base of tasks with one loss.
class OneLoss : public Task {
 public:
  OneLoss(std::string_view name, Fields fields, std::int64_t per_sample);

  std::string_view name() const noexcept override { return name_; }
  const std::vector<LossSpec>& losses() const noexcept override { return losses_; }
  std::vector<std::string> fields() const override { return fields_of_batch(fields_); }
  Primary primary() const override { return primary_; }

  // To be called after construction. Throws Fault::config if an evaluation does not
  // have it.
  void choose_primary(const std::string& wanted, const std::string& standard);

 protected:
  const Fields& where() const noexcept { return fields_; }

 private:
  std::string_view name_;
  Fields fields_;
  std::vector<LossSpec> losses_;
  Primary primary_{"loss", Better::less};
};

}  // namespace lockstep::task::detail
