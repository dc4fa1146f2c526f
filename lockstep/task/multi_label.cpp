#include "lockstep/task/multi_label.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/task/detail/one_loss.h"
#include "lockstep/task/label_metrics.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;
using torch::Tensor;

struct Scores {
  Tensor outputs, targets;
};

Scores scores_in(const Named& outputs, const Named& batch, const Fields& fields) {
  const auto& scores = outputs.at(fields.output);
  const auto& targets = batch.at(fields.target);
  if (scores.sizes() != targets.sizes()) {
    throw Error(Fault::config, "task: output '", fields.output, "' has shape ",
                scores.sizes(), ", but target '", fields.target, "' has ",
                targets.sizes(), "; labels need a score for each");
  }
  return {scores, targets};
}

struct LabelFields {
  Fields fields;
  config::Uncertain uncertain;
};

Answers answers_in(const Named& outputs, const Named& batch, const LabelFields& where) {
  const auto& [fields, uncertain] = where;
  const auto seen = scores_in(outputs, batch, fields);
  const auto counted = counted_in(batch, fields, seen.targets.sizes());
  const auto labels = known_labels(seen.targets, uncertain, counted.mask);
  return {seen.outputs.detach(), labels.values, labels.valid};
}

class MultiLabel : public detail::OneLoss {
 public:
  explicit MultiLabel(const MultiLabelOptions& options)
      : OneLoss("multi_label", options.fields, options.per_sample),
        options_(options),
        positive_weights_(options.loss.positive_weights) {}

  Sums sums(const Named& outputs, const Named& batch, const Pass& pass) const override {
    const auto seen = scores_in(outputs, batch, where());
    auto loss = options_.loss;
    loss.positive_weights =
        pass.training ? positive_weights_.on(seen.outputs.device()) : Tensor();
    return Sums{binary_cross_entropy(seen.outputs.to(pass.dtype), seen.targets, loss,
                                     counted_in(batch, where(), seen.targets.sizes()))};
  }

  Sums weights(const Named& batch, const Pass&) const override {
    const auto& targets = batch.at(where().target);
    return Sums{binary_cross_entropy_weight(
        targets, options_.loss, counted_in(batch, where(), targets.sizes()))};
  }

  // Sums right labels, and those that count.
  std::int64_t num_training_sums() const noexcept override {
    return options_.trains_metrics ? 2 : 0;
  }

  void add_training_sums(const Named& outputs, const Named& batch,
                         Tensor& sums) const override {
    if (!options_.trains_metrics) return;
    sums.add_(
        right_labels(answers_in(outputs, batch, {where(), options_.loss.uncertain})));
  }

  std::vector<MetricValue> training_values(const double* sums, double) const override {
    if (!options_.trains_metrics) return {};
    return {{"accuracy", detail::ratio(sums[0], sums[1]), Better::more, true}};
  }

  MetricSet metrics() const override {
    auto wanted = options_.measured.metrics;
    const bool has =
        std::find(wanted.begin(), wanted.end(), EvalMetric::auroc) != wanted.end();
    // Scores are kept for it, so that it is absent if another metric is primary.
    if (!has && options_.measured.primary.empty()) {
      wanted.insert(wanted.begin(), EvalMetric::auroc);
    }
    MetricSet set;
    set.add(make_label_metrics(wanted, options_.num_labels),
            [fields = LabelFields{where(), options_.loss.uncertain}](
                const Named& outputs, const Named& batch) {
              return answers_in(outputs, batch, fields);
            });
    return set;
  }

 private:
  MultiLabelOptions options_;
  detail::DeviceCopies positive_weights_;
};

}  // namespace

std::shared_ptr<Task> make_multi_label(const MultiLabelOptions& options) {
  auto task = std::make_shared<MultiLabel>(options);
  task->choose_primary(options.measured.primary, "auroc");
  return task;
}

}  // namespace lockstep::task
