#include "lockstep/task/metric.h"

#include <utility>

namespace lockstep::task {

void SumMetric::add(const Answers& answers) {
  const auto sums = sums_of(answers).to(torch::kFloat64);
  if (sums_.defined()) {
    sums_.add_(sums);
  } else {
    sums_ = sums;
  }
}

std::vector<MetricValue> SumMetric::values(comm::Communicator& cpu) {
  auto sums = sums_.defined() ? sums_.cpu().clone()
                              : torch::zeros({num_sums()}, torch::kFloat64);
  if (cpu.size() > 1) cpu.all_reduce(sums).wait();
  return values_of(sums);
}

void MetricSet::add(MetricList metrics, Answer answer, std::string prefix) {
  groups_.push_back({std::move(metrics), std::move(answer), std::move(prefix)});
}

void MetricSet::add(MetricSet other, const std::string& prefix) {
  for (auto& group : other.groups_) {
    group.prefix = prefix + group.prefix;
    groups_.push_back(std::move(group));
  }
}

void MetricSet::observe(const Named& outputs, const Named& batch) {
  const torch::NoGradGuard no_grad;
  for (const auto& group : groups_) {
    const auto answers = group.answer(outputs, batch);
    for (const auto& metric : group.metrics) metric->add(answers);
  }
}

std::vector<MetricValue> MetricSet::values(comm::Communicator& cpu) {
  std::vector<MetricValue> all;
  for (const auto& group : groups_) {
    for (const auto& metric : group.metrics) {
      for (auto& value : metric->values(cpu)) {
        value.name = group.prefix + value.name;
        all.push_back(std::move(value));
      }
    }
  }
  return all;
}

}  // namespace lockstep::task
