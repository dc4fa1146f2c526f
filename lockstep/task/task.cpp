#include "lockstep/task/task.h"

namespace lockstep::task {

Sums Task::weights(const Named&, const Pass&) const {
  return Sums(losses().size());
}

torch::Tensor Task::plain_targets(const Named&) const {
  return {};
}

double Task::coefficient(std::size_t loss, std::int64_t) const {
  return losses()[loss].coefficient;
}

void Task::add_training_sums(const Named&, const Named&, torch::Tensor&) const {}

std::vector<MetricValue> Task::training_values(const double*, double) const {
  return {};
}

}  // namespace lockstep::task
