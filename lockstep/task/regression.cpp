#include "lockstep/task/regression.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/task/detail/one_loss.h"
#include "lockstep/task/regression_metrics.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;
using torch::Tensor;

// Returns outputs of the shape of the targets: (B, 1) for targets of (B).
Tensor outputs_in(const Named& outputs, const Tensor& targets, const Fields& fields) {
  const auto& said = outputs.at(fields.output);
  if (said.sizes() == targets.sizes()) return said;
  const bool fits = said.dim() > 0 && targets.dim() > 0 &&
                    said.size(0) == targets.size(0) && said.numel() == targets.numel();
  if (fits) return said.reshape(targets.sizes());
  throw Error(Fault::config, "task: output '", fields.output, "' has shape ",
              said.sizes(), ", but target '", fields.target, "' has ", targets.sizes(),
              "; regression needs one number for each");
}

class Regression : public detail::OneLoss {
 public:
  explicit Regression(const RegressionOptions& options)
      : OneLoss("regression", options.fields, options.per_sample), options_(options) {}

  Sums sums(const Named& outputs, const Named& batch, const Pass& pass) const override {
    const auto& targets = batch.at(where().target);
    return Sums{regression_loss(outputs_in(outputs, targets, where()).to(pass.dtype),
                                targets, options_.loss,
                                counted_in(batch, where(), targets.sizes()))};
  }

  Sums weights(const Named& batch, const Pass&) const override {
    const auto& targets = batch.at(where().target);
    return Sums{regression_weight(counted_in(batch, where(), targets.sizes()))};
  }

  MetricSet metrics() const override {
    auto wanted = options_.measured.metrics;
    const auto own = standard();
    if (options_.measured.primary.empty() &&
        std::find(wanted.begin(), wanted.end(), own) == wanted.end()) {
      wanted.insert(wanted.begin(), own);
    }
    MetricSet set;
    set.add(make_regression_metrics(wanted, options_.num_values),
            [fields = where()](const Named& outputs, const Named& batch) {
              const auto& targets = batch.at(fields.target);
              return Answers{outputs_in(outputs, targets, fields).detach(), targets,
                             counted_in(batch, fields, targets.sizes()).mask};
            });
    return set;
  }

  EvalMetric standard() const noexcept {
    return options_.loss.kind == config::Criterion::mse ? EvalMetric::rmse
                                                        : EvalMetric::mae;
  }

 private:
  RegressionOptions options_;
};

}  // namespace

std::shared_ptr<Task> make_regression(const RegressionOptions& options) {
  auto task = std::make_shared<Regression>(options);
  task->choose_primary(options.measured.primary,
                       std::string(name_of(task->standard())));
  return task;
}

}  // namespace lockstep::task
