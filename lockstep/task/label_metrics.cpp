#include "lockstep/task/label_metrics.h"

#include "lockstep/base/error.h"
#include "lockstep/task/detail/one_loss.h"
#include "lockstep/task/ranking.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;
using detail::mean_or_nan;
using torch::Tensor;

// (N, labels) bool: the predictions and the targets, where they count.
struct Said {
  Tensor yes, is;  // both only where it counts

  static Said of(const Answers& answers) {
    Said said{answers.outputs.gt(0), answers.targets.gt(0.5)};
    if (answers.valid.defined()) {
      said.yes = said.yes & answers.valid;
      said.is = said.is & answers.valid;
    }
    return said;
  }
};

class LabelAccuracy : public SumMetric {
 protected:
  Tensor sums_of(const Answers& answers) const override {
    return right_labels(answers);
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    return {{"accuracy", mean_or_nan(sum[0], sum[1]), Better::more, true}};
  }
};

// Counts for each label how often it was found, is present, and was predicted. A label
// that is neither present nor predicted has no F1.
class LabelF1 : public SumMetric {
 public:
  LabelF1(std::int64_t num_labels, EvalMetric kind)
      : labels_(num_labels), kind_(kind) {}

 protected:
  Tensor sums_of(const Answers& answers) const override {
    detail::check_columns(answers.outputs, labels_, "labels");
    const auto said = Said::of(answers);
    const auto by_label = [this](const Tensor& where) {
      return where.reshape({-1, labels_}).sum(0, false, torch::kFloat64);
    };
    return torch::cat(
        {by_label(said.yes & said.is), by_label(said.is), by_label(said.yes)});
  }
  std::int64_t num_sums() const override { return 3 * labels_; }

  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    std::vector<MetricValue> values;
    double total = 0, seen = 0, found = 0, all = 0;
    for (std::int64_t l = 0; l < labels_; ++l) {
      const auto both = sum[labels_ + l] + sum[2 * labels_ + l];
      const auto f1 = mean_or_nan(2 * sum[l], both);
      total += both > 0 ? f1 : 0;
      seen += both > 0 ? 1 : 0;
      found += sum[l];
      all += both;
      if (kind_ != EvalMetric::f1_per_label) continue;
      values.push_back({str("f1_label_", l), f1, Better::more, true, detail::kDetail});
    }
    if (kind_ == EvalMetric::f1) {
      values.push_back({"f1", mean_or_nan(total, seen), Better::more, true});
    }
    if (kind_ == EvalMetric::f1_micro) {
      values.push_back({"f1_micro", mean_or_nan(2 * found, all), Better::more, true});
    }
    return values;
  }

 private:
  std::int64_t labels_;
  EvalMetric kind_;
};

std::unique_ptr<Metric> make_one(EvalMetric metric, std::int64_t num_labels) {
  switch (metric) {
    case EvalMetric::f1:
    case EvalMetric::f1_micro:
    case EvalMetric::f1_per_label:
      return std::make_unique<LabelF1>(num_labels, metric);
    default:
      throw Error(Fault::config, "eval.metrics: ", name_of(metric),
                  " is not a metric of labels; leave it out");
  }
}

}  // namespace

Tensor right_labels(const Answers& answers) {
  const auto right = answers.outputs.gt(0).eq(answers.targets.gt(0.5));
  if (!answers.valid.defined()) {
    const auto sum = right.sum(torch::kFloat64);
    return torch::stack({sum, torch::full_like(sum, right.numel())});
  }
  return torch::stack({(right & answers.valid).sum(torch::kFloat64),
                       answers.valid.sum(torch::kFloat64)});
}

MetricList make_label_metrics(const std::vector<EvalMetric>& wanted,
                              std::int64_t num_labels) {
  MetricList list;
  for (const auto metric : wanted) {
    if (!is_of_ranking(metric)) list.push_back(make_one(metric, num_labels));
  }
  insert_ranking(list, wanted, {.num_columns = num_labels});
  list.insert(list.begin(), std::make_unique<LabelAccuracy>());
  return list;
}

}  // namespace lockstep::task
