#include "lockstep/task/tally.h"

#include <algorithm>
#include <utility>

namespace lockstep::task {
namespace {

// One that is alone is all that there is.
std::int64_t num_parts(const task::Task& task) {
  const auto losses = static_cast<std::int64_t>(task.losses().size());
  return losses > 1 ? losses : 0;
}

}  // namespace

std::optional<double> Means::find(std::string_view name) const {
  if (name == "loss") return loss;
  for (const auto& one : values) {
    if (one.name == name) return one.value;
  }
  return std::nullopt;
}

Tally::Tally(std::shared_ptr<const task::Task> task, const torch::Device& device)
    : task_(std::move(task)) {
  const auto losses = 1 + num_parts(*task_);
  const auto metrics = task_->num_training_sums();
  sums_ =
      torch::zeros({losses + metrics}, torch::dtype(torch::kFloat64).device(device));
  metrics_ = sums_.narrow(0, losses, metrics);
}

void Tally::add(const torch::Tensor& total, const task::Sums& losses,
                std::int64_t count) {
  sums_.select(0, 0).add_(total);
  for (std::int64_t i = 0; i < num_parts(*task_); ++i) {
    sums_.select(0, 1 + i).add_(losses[static_cast<std::size_t>(i)]);
  }
  count_ += count;
}

void Tally::remember() {
  if (!remembered_sums_.defined()) remembered_sums_ = torch::empty_like(sums_);
  remembered_sums_.copy_(sums_);
  remembered_count_ = count_;
}

void Tally::rewind() {
  sums_.copy_(remembered_sums_);
  count_ = remembered_count_;
}

void Tally::rewind_if(const torch::Tensor& flag) {
  sums_.copy_(torch::where(flag != 0, remembered_sums_, sums_));
}

void Tally::reset() {
  sums_.zero_();
  count_ = 0;
}

Means Tally::means_of(const torch::Tensor& sums, double count) const {
  const auto* sum = sums.const_data_ptr<double>();
  const auto divisor = std::max(count, 1.0);
  Means means{.loss = sum[0] / divisor, .count = static_cast<std::int64_t>(count)};
  const auto parts = num_parts(*task_);
  for (std::int64_t i = 0; i < parts; ++i) {
    means.values.push_back({"loss_" + task_->losses()[static_cast<std::size_t>(i)].name,
                            sum[1 + i] / divisor, task::Better::less});
  }
  for (auto& value : task_->training_values(sum + 1 + parts, divisor)) {
    means.values.push_back(std::move(value));
  }
  return means;
}

double Tally::loss() const {
  return sums_.select(0, 0).item<double>() /
         static_cast<double>(std::max<std::int64_t>(count_, 1));
}

Means Tally::means() const {
  return means_of(sums_.cpu(), static_cast<double>(count_));
}

Means Tally::means(comm::Communicator& cpu) const {
  const auto all = torch::empty({sums_.size(0) + 1}, torch::kFloat64);
  all.narrow(0, 0, sums_.size(0)).copy_(sums_);
  all[sums_.size(0)] = static_cast<double>(count_);
  cpu.all_reduce(all).wait();
  return means_of(all, all[sums_.size(0)].item<double>());
}

}  // namespace lockstep::task
