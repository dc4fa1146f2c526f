#include "lockstep/task/classification.h"

#include <utility>

#include "lockstep/task/class_metrics.h"
#include "lockstep/task/detail/classes.h"

namespace lockstep::task {
namespace {

class Classification : public detail::ClassLoss {
 public:
  explicit Classification(const ClassificationOptions& options)
      : ClassLoss({.name = "classification",
                   .fields = options.fields,
                   .loss = options.loss,
                   .num_classes = options.num_classes,
                   .per_sample = options.per_sample}),
        options_(options) {}

  // Sums right answers and, where some do not count, those that do.
  std::int64_t num_training_sums() const noexcept override {
    if (!options_.trains_metrics) return 0;
    return can_ignore() ? 2 : 1;
  }

  void add_training_sums(const Named& outputs, const Named& batch,
                         torch::Tensor& sums) const override {
    if (!options_.trains_metrics) return;
    const auto said = detail::class_answers(outputs, batch, {where(), ignore_index()});
    const auto hits = said.outputs.argmax(1).eq(said.targets);
    const auto& valid = said.valid;
    sums.select(0, 0).add_(valid.defined() ? (hits & valid).sum() : hits.sum());
    if (!can_ignore()) return;
    auto count = sums.select(0, 1);
    if (valid.defined()) {
      count.add_(valid.sum());
    } else {
      count.add_(hits.numel());
    }
  }

  std::vector<MetricValue> training_values(const double* sums,
                                           double count) const override {
    if (!options_.trains_metrics) return {};
    const auto share = detail::ratio(sums[0], can_ignore() ? sums[1] : count);
    return {{"accuracy", share, Better::more, true}};
  }

  MetricSet metrics() const override {
    MetricList list;
    list.push_back(make_accuracy());
    for (auto& one : make_class_metrics(options_.measured, options_.num_classes)) {
      list.push_back(std::move(one));
    }
    MetricSet set;
    set.add(std::move(list), [fields = where(), ignored = ignore_index()](
                                 const Named& outputs, const Named& batch) {
      return detail::class_answers(outputs, batch, {fields, ignored});
    });
    return set;
  }

 private:
  bool can_ignore() const noexcept {
    return ignore_index().has_value() || !where().mask.empty();
  }

  ClassificationOptions options_;
};

}  // namespace

std::shared_ptr<Task> make_classification(const ClassificationOptions& options) {
  auto task = std::make_shared<Classification>(options);
  task->choose_primary(options.measured.primary, "accuracy");
  return task;
}

}  // namespace lockstep::task
