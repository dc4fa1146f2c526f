#include "lockstep/task/multi_task.h"

#include <algorithm>
#include <set>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/task/primary.h"

namespace lockstep::task {
namespace {

class MultiTask : public Task {
 public:
  explicit MultiTask(MultiTaskOptions options) : options_(std::move(options)) {
    for (std::size_t i = 0; i < options_.parts.size(); ++i) add_losses(i);
  }

  std::string_view name() const noexcept override { return "multi_task"; }
  const std::vector<LossSpec>& losses() const noexcept override { return losses_; }
  Primary primary() const override { return primary_; }

  std::vector<std::string> fields() const override {
    std::vector<std::string> all;
    for (const auto& part : options_.parts) {
      for (auto& name : part.task->fields()) {
        if (std::find(all.begin(), all.end(), name) == all.end()) {
          all.push_back(std::move(name));
        }
      }
    }
    return all;
  }

  Sums sums(const Named& outputs, const Named& batch, const Pass& pass) const override {
    Sums all;
    for (const auto& part : options_.parts) {
      for (auto& sum : part.task->sums(outputs, batch, pass)) {
        all.push_back(std::move(sum));
      }
    }
    return all;
  }

  Sums weights(const Named& batch, const Pass& pass) const override {
    Sums all;
    for (const auto& part : options_.parts) {
      for (auto& weight : part.task->weights(batch, pass)) {
        all.push_back(std::move(weight));
      }
    }
    return all;
  }

  double coefficient(std::size_t loss, std::int64_t step) const override {
    const auto& [part, of_part] = indices_[loss];
    const auto& about = options_.parts[part];
    const auto begin = about.coefficient;
    const auto end = about.final_coefficient.value_or(begin);
    const auto length = options_.ramp_steps;
    const auto done = length > 0 ? static_cast<double>(std::min(step, length)) /
                                       static_cast<double>(length)
                                 : 0.0;
    return (begin + (end - begin) * done) * about.task->coefficient(of_part, step);
  }

  std::int64_t num_training_sums() const noexcept override {
    std::int64_t all = 0;
    for (const auto& part : options_.parts) all += part.task->num_training_sums();
    return all;
  }

  void add_training_sums(const Named& outputs, const Named& batch,
                         torch::Tensor& sums) const override {
    std::int64_t begin = 0;
    for (const auto& part : options_.parts) {
      const auto count = part.task->num_training_sums();
      if (count == 0) continue;
      auto own = sums.narrow(0, begin, count);
      part.task->add_training_sums(outputs, batch, own);
      begin += count;
    }
  }

  std::vector<MetricValue> training_values(const double* sums,
                                           double count) const override {
    // The first loss counts; others have their own number of targets in a sample.
    const auto samples = count / static_cast<double>(losses_[0].per_sample);
    std::vector<MetricValue> all;
    for (const auto& part : options_.parts) {
      const auto targets = static_cast<double>(part.task->losses()[0].per_sample);
      for (auto& value : part.task->training_values(sums, samples * targets)) {
        value.name = part.name + "_" + value.name;
        all.push_back(std::move(value));
      }
      sums += part.task->num_training_sums();
    }
    return all;
  }

  MetricSet metrics() const override {
    MetricSet all;
    for (const auto& part : options_.parts) {
      all.add(part.task->metrics(), part.name + "_");
    }
    return all;
  }

  void choose_primary() {
    if (!options_.primary.empty()) {
      primary_ = find_primary(*this, options_.primary, "task.primary");
      return;
    }
    primary_ = options_.parts[0].task->primary();
    primary_.name = name_of_first(primary_.name);
  }

 private:
  // Returns the name under which a value of the first part is reported: a loss has the
  // one that it got here, not that of a metric.
  std::string name_of_first(const std::string& name) const {
    const auto& part = options_.parts[0];
    const auto& own = part.task->losses();
    for (std::size_t i = 0; i < own.size(); ++i) {
      if (name != (own.size() == 1 ? "loss" : "loss_" + own[i].name)) continue;
      return losses_.size() == 1 ? "loss" : "loss_" + losses_[i].name;
    }
    // The sum of several losses of a part is not reported: only that of all losses is.
    return name == "loss" ? name : part.name + "_" + name;
  }

  void add_losses(std::size_t index) {
    const auto& part = options_.parts[index];
    const auto& own = part.task->losses();
    for (std::size_t i = 0; i < own.size(); ++i) {
      auto loss = own[i];
      loss.name = own.size() == 1 ? part.name : part.name + "_" + loss.name;
      loss.coefficient *= part.coefficient;
      losses_.push_back(std::move(loss));
      indices_.push_back({index, i});
    }
  }

  MultiTaskOptions options_;
  std::vector<LossSpec> losses_;
  struct LossIndex {
    std::size_t part, loss;
  };
  std::vector<LossIndex> indices_;  // of each loss
  Primary primary_;
};

}  // namespace

std::shared_ptr<Task> make_multi_task(MultiTaskOptions options) {
  if (options.parts.empty()) {
    throw Error(
        Fault::config,
        "task: several tasks were requested, but there is no part; name at least one");
  }
  std::set<std::string> names;
  for (const auto& part : options.parts) {
    if (names.insert(part.name).second) continue;
    throw Error(Fault::config, "task: two parts are called '", part.name,
                "'; name each once");
  }
  auto task = std::make_shared<MultiTask>(std::move(options));
  task->choose_primary();
  return task;
}

}  // namespace lockstep::task
