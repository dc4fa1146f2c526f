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
//
// Deviations are from the mean of what was seen, not differences of large sums: those
// leave something of a constant target, and little of a small spread about a large
// mean.
class R2 : public Metric {
 public:
  explicit R2(std::int64_t num_values) : values_(num_values) {}

  void add(const Answers& answers) override {
    const auto columns = [this](const Tensor& of) { return of.reshape({-1, values_}); };
    const auto target =
        columns(or_zero(answers.targets.to(torch::kFloat64), answers.valid));
    const auto counts = columns(ones_of(answers));
    const auto count = counts.sum(0);
    const auto mean = target.sum(0) / count.clamp_min(1);
    const auto moments =
        torch::stack({count, mean, ((target - mean) * counts).square().sum(0),
                      columns(errors_of(answers).square()).sum(0)});
    moments_ = moments_.defined() ? joined(moments_, moments) : moments;
  }

  std::vector<MetricValue> values(comm::Communicator& cpu) override {
    auto own = moments_.defined() ? moments_.cpu().contiguous()
                                  : torch::zeros({kMoments, values_}, torch::kFloat64);
    if (cpu.size() > 1) {
      const auto all = torch::empty({cpu.size() * own.numel()}, torch::kFloat64);
      cpu.all_gather(all, own.reshape({-1})).wait();
      const auto ranks = all.view({cpu.size(), kMoments, values_}).unbind();
      own = ranks[0];
      for (std::size_t rank = 1; rank < ranks.size(); ++rank) {
        own = joined(own, ranks[rank]);
      }
      own = own.contiguous();
    }
    return {{"r2", r2_of(own), Better::more}};
  }

 private:
  // Rows: how many, their mean, the sum of squared deviations, that of squared errors.
  static constexpr std::int64_t kMoments = 4;

  // Returns the moments of both together.
  static Tensor joined(const Tensor& one, const Tensor& other) {
    const auto count = one[0] + other[0];
    const auto part = other[0] / count.clamp_min(1);
    const auto apart = other[1] - one[1];
    return torch::stack({count, one[1] + apart * part,
                         one[2] + other[2] + apart.square() * one[0] * part,
                         one[3] + other[3]});
  }

  double r2_of(const Tensor& moments) const {
    // Less than float64 tells from rounding is no spread.
    constexpr double kRounding = 1e-12;
    const auto all = moments.accessor<double, 2>();
    double total = 0, seen = 0;
    for (std::int64_t v = 0; v < values_; ++v) {
      const double count = all[0][v], mean = all[1][v];
      const double spread = all[2][v], error = all[3][v];
      if (count == 0) continue;
      seen += 1;
      const bool is_constant = spread <= count * std::pow(kRounding * mean, 2);
      total += !is_constant ? 1 - error / spread : error == 0 ? 1 : 0;
    }
    return mean_or_nan(total, seen);
  }

  std::int64_t values_;
  Tensor moments_;
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
