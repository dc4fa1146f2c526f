#include "lockstep/task/regression_metrics.h"

#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/task/detail/one_loss.h"
#include "lockstep/task/losses.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;
using detail::mean_or_nan;
using torch::Tensor;

// Returns the errors in float64, and 0 where a target does not count.
Tensor errors_of(const Answers& answers) {
  const auto error =
      answers.outputs.to(torch::kFloat64) - answers.targets.to(torch::kFloat64);
  return or_zero(error, answers.valid);
}

// Returns 1 where a target counts.
Tensor ones_of(const Answers& answers) {
  return or_zero(torch::ones_like(answers.targets, torch::kFloat64), answers.valid);
}

class MeanError : public SumMetric {
 public:
  explicit MeanError(EvalMetric kind) : kind_(kind) {}

 protected:
  Tensor sums_of(const Answers& answers) const override {
    const auto error = errors_of(answers);
    const auto each = kind_ == EvalMetric::mae ? error.abs() : error.square();
    return torch::stack({each.sum(), ones_of(answers).sum()});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    const auto mean = mean_or_nan(sum[0], sum[1]);
    return {{std::string(name_of(kind_)),
             kind_ == EvalMetric::mae ? mean : std::sqrt(mean), Better::less}};
  }

 private:
  EvalMetric kind_;
};

// The share of the variance that is explained. For a constant target it is 1 if all
// answers are right, else 0, as in scikit-learn.
class R2 : public SumMetric {
 public:
  explicit R2(std::int64_t num_values) : values_(num_values) {}

 protected:
  Tensor sums_of(const Answers& answers) const override {
    const auto target = or_zero(answers.targets.to(torch::kFloat64), answers.valid);
    const auto each = [this](const Tensor& of) {
      return of.reshape({-1, values_}).sum(0);
    };
    return torch::cat({each(ones_of(answers)), each(target), each(target.square()),
                       each(errors_of(answers).square())});
  }
  std::int64_t num_sums() const override { return 4 * values_; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    double total = 0, seen = 0;
    const auto* sum = sums.const_data_ptr<double>();
    for (std::int64_t v = 0; v < values_; ++v, ++sum) {
      const auto count = sum[0];
      if (count == 0) continue;
      seen += 1;
      const auto spread = sum[2 * values_] - sum[values_] * sum[values_] / count;
      const auto error = sum[3 * values_];
      total += spread > 0 ? 1 - error / spread : error == 0 ? 1 : 0;
    }
    return {{"r2", mean_or_nan(total, seen), Better::more}};
  }

 private:
  std::int64_t values_;
};

std::unique_ptr<Metric> make_one(EvalMetric metric, std::int64_t num_values) {
  switch (metric) {
    case EvalMetric::mae:
    case EvalMetric::rmse:
      return std::make_unique<MeanError>(metric);
    case EvalMetric::r2:
      return std::make_unique<R2>(num_values);
    default:
      throw Error(Fault::config, "eval.metrics: ", name_of(metric),
                  " is not a metric of regression; leave it out");
  }
}

}  // namespace

MetricList make_regression_metrics(const std::vector<EvalMetric>& wanted,
                                   std::int64_t num_values) {
  MetricList list;
  for (const auto metric : wanted) list.push_back(make_one(metric, num_values));
  return list;
}

}  // namespace lockstep::task
