#include "lockstep/task/class_metrics.h"

#include <algorithm>
#include <cmath>

#include "lockstep/base/error.h"
#include "lockstep/task/detail/one_loss.h"
#include "lockstep/task/ranking.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;
using detail::check_columns;
using detail::kDetail;
using detail::mean_or_nan;
using torch::Tensor;

Tensor count_of(const Answers& answers) {
  if (answers.valid.defined()) return answers.valid.sum();
  return torch::full({}, answers.targets.numel(), answers.targets.options());
}

// Returns true where the answer is right and counts.
Tensor counting(const Tensor& right, const Tensor& valid) {
  return valid.defined() ? right & valid : right;
}

class Accuracy : public SumMetric {
 protected:
  Tensor sums_of(const Answers& answers) const override {
    const auto right = answers.outputs.argmax(1).eq(answers.targets);
    return torch::stack({counting(right, answers.valid).sum(), count_of(answers)});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    return {{"accuracy", mean_or_nan(sum[0], sum[1]), Better::more, true}};
  }
};

// Counts the right answers among the k most likely ones.
class TopK : public SumMetric {
 public:
  TopK(std::int64_t k, std::int64_t num_classes)
      : k_(num_classes > 0 ? std::min(k, num_classes) : k), classes_(num_classes) {}

 protected:
  Tensor sums_of(const Answers& answers) const override {
    // More scores than classes, as in a padded vocabulary, are only more that may be
    // wrong.
    if (answers.outputs.size(1) < classes_) {
      check_columns(answers.outputs, classes_, "classes");
    }
    const auto k = std::min(k_, answers.outputs.size(1));
    const auto likely = std::get<1>(answers.outputs.topk(k, 1));
    const auto right = likely.eq(answers.targets.unsqueeze(1)).any(1);
    return torch::stack({counting(right, answers.valid).sum(), count_of(answers)});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    return {
        {str("accuracy_top_", k_), mean_or_nan(sum[0], sum[1]), Better::more, true}};
  }

 private:
  std::int64_t k_, classes_;
};

// Returns how many targets fall into each of `bins`. Not bincount, which waits for the
// device.
Tensor counts_in(std::int64_t bins, const Tensor& index, const Tensor& valid) {
  const auto options = index.options().dtype(torch::kFloat64);
  const auto ones =
      valid.defined() ? valid.to(torch::kFloat64) : torch::ones(index.sizes(), options);
  return torch::zeros({bins}, options).index_add_(0, index, ones);
}

// Counts for each class its right answers, its targets and the answers that name it.
class PerClass : public SumMetric {
 public:
  explicit PerClass(std::int64_t num_classes) : classes_(num_classes) {}

 protected:
  Tensor sums_of(const Answers& answers) const override {
    check_columns(answers.outputs, classes_, "classes");
    const auto said = answers.outputs.argmax(1);
    const auto right = counting(said.eq(answers.targets), answers.valid);
    return torch::cat({counts_in(classes_, answers.targets, right),
                       counts_in(classes_, answers.targets, answers.valid),
                       counts_in(classes_, said, answers.valid)});
  }
  std::int64_t num_sums() const override { return 3 * classes_; }

  struct Counts {
    double right = 0, targets = 0, answers = 0;

    bool seen() const { return targets + answers > 0; }
    double f1() const { return mean_or_nan(2 * right, targets + answers); }
  };
  std::vector<Counts> counts(const Tensor& sums) const {
    const auto* sum = sums.const_data_ptr<double>();
    std::vector<Counts> all;
    for (std::int64_t c = 0; c < classes_; ++c) {
      all.push_back({sum[c], sum[classes_ + c], sum[2 * classes_ + c]});
    }
    return all;
  }

  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    std::vector<MetricValue> values;
    for (const auto& of : counts(sums)) {
      values.push_back({str("accuracy_class_", values.size()),
                        mean_or_nan(of.right, of.targets), Better::more, true,
                        kDetail});
    }
    return values;
  }

 private:
  std::int64_t classes_;
};

// "macro": the mean over classes of each one's. A class that neither occurs nor is
// answered has none. "micro": of all right and wrong answers together.
class F1 : public PerClass {
 public:
  F1(std::int64_t num_classes, EvalMetric kind) : PerClass(num_classes), kind_(kind) {}

 protected:
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    std::vector<MetricValue> values;
    double total = 0, seen = 0;
    Counts all;
    for (const auto& of : counts(sums)) {
      all = {all.right + of.right, all.targets + of.targets, all.answers + of.answers};
      total += of.seen() ? of.f1() : 0;
      seen += of.seen() ? 1 : 0;
      if (kind_ != EvalMetric::f1_per_label) continue;
      values.push_back(
          {str("f1_class_", values.size()), of.f1(), Better::more, true, kDetail});
    }
    if (kind_ == EvalMetric::f1) {
      values.push_back({"f1", mean_or_nan(total, seen), Better::more, true});
    }
    if (kind_ == EvalMetric::f1_micro) {
      values.push_back({"f1_micro", all.f1(), Better::more, true});
    }
    return values;
  }

 private:
  EvalMetric kind_;
};

// Counts how often each class was taken for each other: confusion_i_j, i is right.
class Confusion : public SumMetric {
 public:
  explicit Confusion(std::int64_t num_classes) : classes_(num_classes) {}

 protected:
  Tensor sums_of(const Answers& answers) const override {
    check_columns(answers.outputs, classes_, "classes");
    const auto cells = answers.targets * classes_ + answers.outputs.argmax(1);
    return counts_in(classes_ * classes_, cells, answers.valid);
  }
  std::int64_t num_sums() const override { return classes_ * classes_; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    std::vector<MetricValue> values;
    for (std::int64_t i = 0; i < classes_; ++i) {
      for (std::int64_t j = 0; j < classes_; ++j) {
        values.push_back({str("confusion_", i, "_", j), sum[i * classes_ + j],
                          i == j ? Better::more : Better::less, /*is_share=*/false,
                          kDetail});
      }
    }
    return values;
  }

 private:
  std::int64_t classes_;
};

Tensor loss_of(const Answers& answers) {
  return cross_entropy(answers.outputs.to(torch::kFloat32), answers.targets, {},
                       {answers.valid})
      .to(torch::kFloat64);
}

// e to the mean loss of a target.
class Perplexity : public SumMetric {
 protected:
  Tensor sums_of(const Answers& answers) const override {
    return torch::stack({loss_of(answers), count_of(answers).to(torch::kFloat64)});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    return {{"perplexity", std::exp(mean_or_nan(sum[0], sum[1])), Better::less}};
  }
};

// The bits that a target costs for each byte of its text: comparable between
// vocabularies.
class BitsPerByte : public SumMetric {
 protected:
  Tensor sums_of(const Answers& answers) const override {
    auto bytes = answers.bytes;
    if (answers.valid.defined()) bytes = bytes * answers.valid;
    return torch::stack({loss_of(answers), bytes.sum(torch::kFloat64)});
  }
  std::int64_t num_sums() const override { return 2; }
  std::vector<MetricValue> values_of(const Tensor& sums) const override {
    const auto* sum = sums.const_data_ptr<double>();
    return {
        {"bits_per_byte", mean_or_nan(sum[0] / std::log(2.0), sum[1]), Better::less}};
  }
};

void check_classes(EvalMetric metric, std::int64_t num_classes) {
  constexpr std::int64_t kMostCells = 20, kMostValues = 10'000;
  const auto name = name_of(metric);
  if (num_classes <= 0) {
    throw Error(Fault::config, "eval.metrics: ", name,
                " has to know the number of classes, which the data set does not say; "
                "leave it out");
  }
  if (metric == EvalMetric::confusion && num_classes > kMostCells) {
    throw Error(Fault::config, "eval.metrics: confusion is ", num_classes, " x ",
                num_classes, " = ", num_classes * num_classes,
                " values; leave it out "
                "above ",
                kMostCells, " classes: per_class has one for each");
  }
  const bool one_for_each = metric == EvalMetric::per_class ||
                            metric == EvalMetric::f1_per_label ||
                            metric == EvalMetric::auroc_per_label ||
                            metric == EvalMetric::average_precision_per_label;
  if (one_for_each && num_classes > kMostValues) {
    throw Error(Fault::config, "eval.metrics: ", name, " has a value for each of ",
                num_classes, " classes; leave it out above ", kMostValues);
  }
}

std::unique_ptr<Metric> make_one(EvalMetric metric, const MetricChoice& measured,
                                 std::int64_t num_classes) {
  switch (metric) {
    case EvalMetric::top_k:
      return std::make_unique<TopK>(measured.top_k, num_classes);
    case EvalMetric::perplexity:
      return std::make_unique<Perplexity>();
    case EvalMetric::per_class:
      check_classes(metric, num_classes);
      return std::make_unique<PerClass>(num_classes);
    case EvalMetric::f1:
    case EvalMetric::f1_micro:
    case EvalMetric::f1_per_label:
      check_classes(metric, num_classes);
      return std::make_unique<F1>(num_classes, metric);
    case EvalMetric::confusion:
      check_classes(metric, num_classes);
      return std::make_unique<Confusion>(num_classes);
    default:
      throw Error(Fault::config, "eval.metrics: ", name_of(metric),
                  " is not a metric of classes; leave it out");
  }
}

}  // namespace

std::unique_ptr<Metric> make_accuracy() {
  return std::make_unique<Accuracy>();
}

std::unique_ptr<Metric> make_perplexity() {
  return std::make_unique<Perplexity>();
}

std::unique_ptr<Metric> make_bits_per_byte() {
  return std::make_unique<BitsPerByte>();
}

MetricList make_class_metrics(const MetricChoice& measured, std::int64_t num_classes) {
  MetricList list;
  for (const auto metric : measured.metrics) {
    if (is_of_ranking(metric)) {
      check_classes(metric, num_classes);
    } else {
      list.push_back(make_one(metric, measured, num_classes));
    }
  }
  insert_ranking(list, measured.metrics,
                 {.num_columns = num_classes, .of_classes = true});
  return list;
}

}  // namespace lockstep::task
