#include "lockstep/train/metrics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::train {
namespace {

using torch::Tensor;

double ratio(double part, double whole) {
  return whole > 0 ? part / whole : 0;
}

// The right answer is among the k most likely ones.
class TopK : public SumMetric {
 public:
  TopK(std::int64_t k, std::int64_t num_classes) : k_(std::min(k, num_classes)) {}

 protected:
  Tensor sums_of(const Answers& answers) const override {
    const auto likely = std::get<1>(answers.logits.topk(k_, 1));
    const auto right = likely.eq(answers.targets.unsqueeze(1)).any(1).sum();
    const auto count = torch::full_like(right, answers.targets.numel());
    return torch::stack({right, count});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    return {{str("accuracy_top_", k_), ratio(sum[0], sum[1])}};
  }

 private:
  std::int64_t k_;
};

// How often each class was taken for each other: rows are right answers.
class Confusion : public SumMetric {
 public:
  explicit Confusion(std::int64_t num_classes) : classes_(num_classes) {}

 protected:
  Tensor sums_of(const Answers& answers) const override {
    const auto cells = answers.targets * classes_ + answers.logits.argmax(1);
    return torch::bincount(cells, /*weights=*/{}, classes_ * classes_);
  }
  std::int64_t num_sums() const override { return classes_ * classes_; }

  std::int64_t classes() const { return classes_; }
  static double cell(const Tensor& sums, std::int64_t classes, std::int64_t target,
                     std::int64_t answer) {
    return sums.const_data_ptr<double>()[target * classes + answer];
  }
  // Of one class: right answers, all samples of it, all answers for it.
  struct Counts {
    double right = 0, samples = 0, answers = 0;
  };
  Counts counts(const Tensor& sums, std::int64_t of) const {
    Counts counts{.right = cell(sums, classes_, of, of)};
    for (std::int64_t c = 0; c < classes_; ++c) {
      counts.samples += cell(sums, classes_, of, c);
      counts.answers += cell(sums, classes_, c, of);
    }
    return counts;
  }

 private:
  std::int64_t classes_;
};

class PerClass : public Confusion {
 public:
  using Confusion::Confusion;

 protected:
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    std::vector<MetricValue> values;
    for (std::int64_t c = 0; c < classes(); ++c) {
      const auto of = counts(sums, c);
      values.push_back({str("accuracy_class_", c), ratio(of.right, of.samples)});
    }
    return values;
  }
};

// The mean over classes of each one's F1, as everybody's "macro" average.
class F1 : public Confusion {
 public:
  using Confusion::Confusion;

 protected:
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    double total = 0;
    double seen = 0;  // a class that neither occurs nor is answered has none
    for (std::int64_t c = 0; c < classes(); ++c) {
      const auto of = counts(sums, c);
      if (of.samples + of.answers == 0) continue;
      total += 2 * of.right / (of.samples + of.answers);
      seen += 1;
    }
    return {{"f1", ratio(total, seen)}};
  }
};

// The area under the ROC curve: how often a sample of a class has a higher score for it
// than one of another class. Exact: the scores of all ranks are brought together, since
// ranks of scores are no sums.
class Auroc : public Metric {
 public:
  explicit Auroc(std::int64_t num_classes) : classes_(num_classes) {}

  void add(const Answers& answers) override {
    scores_.push_back(answers.logits.to(torch::kFloat32).softmax(1).cpu());
    targets_.push_back(answers.targets.cpu());
  }

  std::vector<MetricValue> values(comm::Communicator& cpu) override {
    auto scores = scores_.empty() ? torch::empty({0, classes_}) : torch::cat(scores_);
    auto targets =
        targets_.empty() ? torch::empty({0}, torch::kInt64) : torch::cat(targets_);
    if (cpu.size() > 1) {
      scores = from_all(cpu, scores.flatten()).view({-1, classes_});
      targets = from_all(cpu, targets);
    }
    // What is not a number has no rank.
    if (!scores.isfinite().all().item<bool>()) return {{"auroc", std::nan("")}};
    // Of two classes one says all.
    if (classes_ == 2) {
      return {{"auroc", area(scores.select(1, 1), targets.eq(1)).value_or(0)}};
    }
    double total = 0, seen = 0;
    for (std::int64_t c = 0; c < classes_; ++c) {
      const auto one = area(scores.select(1, c), targets.eq(c));
      if (!one) continue;
      total += *one;
      seen += 1;
    }
    return {{"auroc", ratio(total, seen)}};
  }

 private:
  // The parts of all ranks, one after the other.
  static Tensor from_all(comm::Communicator& cpu, const Tensor& own) {
    const auto lengths = torch::empty({cpu.size()}, torch::kInt64);
    cpu.all_gather(lengths, torch::tensor({own.numel()}, torch::kInt64)).wait();
    std::vector<Tensor> parts;
    for (int r = 0; r < cpu.size(); ++r) {
      parts.push_back(torch::empty({lengths[r].item<std::int64_t>()}, own.options()));
    }
    cpu.all_gather(parts, own.contiguous()).wait();
    return torch::cat(parts);
  }

  // None where one side is empty. Equal scores count one half.
  static std::optional<double> area(const Tensor& scores, const Tensor& is_of_class) {
    const auto score = scores.to(torch::kFloat64).contiguous();
    const auto of_class = is_of_class.contiguous();
    const auto n = static_cast<std::size_t>(score.numel());
    const auto* value = score.const_data_ptr<double>();
    const auto* positive = of_class.const_data_ptr<bool>();
    std::vector<std::size_t> order(n);
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::sort(order.begin(), order.end(),
              [&](std::size_t a, std::size_t b) { return value[a] < value[b]; });
    double positives = 0, negatives = 0, below = 0;
    for (std::size_t i = 0; i < n;) {
      double p = 0, q = 0;  // with this score
      const auto at = value[order[i]];
      for (; i < n && value[order[i]] == at; ++i) (positive[order[i]] ? p : q) += 1;
      below += p * (negatives + q / 2);
      positives += p;
      negatives += q;
    }
    if (positives == 0 || negatives == 0) return std::nullopt;
    return below / (positives * negatives);
  }

  std::int64_t classes_;
  std::vector<Tensor> scores_, targets_;
};

// e to the mean loss of a target.
class Perplexity : public SumMetric {
 protected:
  Tensor sums_of(const Answers& answers) const override {
    const auto loss =
        torch::cross_entropy_loss(answers.logits.to(torch::kFloat32), answers.targets,
                                  /*weight=*/{}, at::Reduction::Sum)
            .to(torch::kFloat64);
    return torch::stack({loss, torch::full_like(loss, answers.targets.numel())});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    return {{"perplexity", std::exp(ratio(sum[0], sum[1]))}};
  }
};

}  // namespace

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

std::vector<std::unique_ptr<Metric>> make_metrics(const config::EvalConfig& config,
                                                  std::int64_t num_classes) {
  std::vector<std::unique_ptr<Metric>> metrics;
  for (const auto name : config.metrics) {
    switch (name) {
      case config::EvalMetric::top_k:
        metrics.push_back(std::make_unique<TopK>(config.top_k, num_classes));
        break;
      case config::EvalMetric::per_class:
        metrics.push_back(std::make_unique<PerClass>(num_classes));
        break;
      case config::EvalMetric::f1:
        metrics.push_back(std::make_unique<F1>(num_classes));
        break;
      case config::EvalMetric::auroc:
        metrics.push_back(std::make_unique<Auroc>(num_classes));
        break;
      case config::EvalMetric::perplexity:
        metrics.push_back(std::make_unique<Perplexity>());
        break;
    }
  }
  const bool tables = std::any_of(
      config.metrics.begin(), config.metrics.end(), [](config::EvalMetric name) {
        return name == config::EvalMetric::per_class || name == config::EvalMetric::f1;
      });
  constexpr std::int64_t kMostClasses = 10'000;  // a table of 10^8 numbers
  if (tables && num_classes > kMostClasses) {
    throw Error(Fault::config, "eval.metrics: per_class and f1 count every pair of ",
                num_classes, " classes; leave them out above ", kMostClasses);
  }
  return metrics;
}

}  // namespace lockstep::train
