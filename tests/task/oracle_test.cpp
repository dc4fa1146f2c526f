// Losses against PyTorch's, metrics against scikit-learn's.
#include "tests/support/oracle.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/files.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/task/losses.h"
#include "tests/comm/ranks.h"
#include "tests/task/cases.h"

namespace lockstep::task {
namespace {

using config::EvalMetric;
using config::Uncertain;
using nlohmann::json;
using torch::Tensor;

// What the Python side gets: tensors by "case.name", and the options of each case.
class LossFile {
 public:
  // `sum` is of `scores`, and `weight` may be undefined.
  void add(const json& options, const Tensor& scores, const Tensor& targets,
           const Counted& counted, const Tensor& sum, const Tensor& weight) {
    const auto name = str("case", options_.size(), ".");
    const auto count = static_cast<double>(options.value("count", scores.size(0)));
    const auto divisor = weight.defined() ? weight.item<double>() : count;
    tensors_.emplace_back(name + "scores", scores.detach());
    tensors_.emplace_back(name + "targets", targets);
    tensors_.emplace_back(name + "mean", (sum / divisor).detach());
    tensors_.emplace_back(name + "gradient",
                          torch::autograd::grad({sum / divisor}, {scores})[0]);
    if (counted.mask.defined()) {
      tensors_.emplace_back(name + "mask", counted.mask.to(torch::kUInt8));
    }
    if (counted.weights.defined()) {
      tensors_.emplace_back(name + "weights", counted.weights);
    }
    options_.push_back(options);
  }

  void check() {
    const files::TemporaryDirectory folder;
    const auto file = folder.path() / "losses.safetensors";
    checkpoint::write_safetensors(file, tensors_);
    test::expect_oracle_agrees("task_losses.py", {file.string(), options_.dump()});
  }

 private:
  checkpoint::NamedTensors tensors_;
  json options_ = json::array();
};

Tensor leaf(at::IntArrayRef shape) {
  return torch::randn(shape).mul_(2).requires_grad_(true);
}

std::vector<double> numbers_in(const Tensor& tensor) {
  const auto of = tensor.to(torch::kFloat64).contiguous();
  return {of.const_data_ptr<double>(), of.const_data_ptr<double>() + of.numel()};
}

constexpr std::int64_t kMany = 40;

std::vector<Counted> ways_to_count(at::IntArrayRef shape) {
  return {{},
          {some_mask(shape)},
          {{}, torch::rand(shape)},
          {some_mask(shape), torch::rand(shape)}};
}

TEST(TaskOracle, CrossEntropyIsPyTorchs) {
  LOCKSTEP_NEEDS_ORACLE();
  torch::manual_seed(21);
  LossFile file;
  const auto weights = torch::tensor({1.0F, 5.0F, 0.125F, 0.25F});
  for (const double smoothing : {0.0, 0.2}) {
    for (const double gamma : {0.0, 1.5}) {
      if (smoothing > 0 && gamma > 0) continue;
      for (const bool weighs : {false, true}) {
        for (const bool ignores : {false, true}) {
          CrossEntropyOptions options{.label_smoothing = smoothing,
                                      .focal_gamma = gamma};
          json about{
              {"loss", "cross_entropy"}, {"smoothing", smoothing}, {"gamma", gamma}};
          if (weighs) {
            options.class_weights = weights;
            about["class_weights"] = numbers_in(weights);
          }
          if (ignores) options.ignore_index = about["ignore_index"] = 2;
          for (const auto& counted : ways_to_count({kMany})) {
            const auto scores = leaf({kMany, kNumClasses});
            const auto targets = some_classes({kMany});
            file.add(about, scores, targets, counted,
                     cross_entropy(scores, targets, options, counted),
                     cross_entropy_weight(targets, options, counted));
            if (ignores) continue;
            const auto shares = torch::rand({kMany, kNumClasses}).softmax(1);
            file.add(about, scores, shares, counted,
                     cross_entropy(scores, shares, options, counted),
                     cross_entropy_weight(shares, options, counted));
          }
        }
      }
    }
  }
  file.check();
}

TEST(TaskOracle, BinaryCrossEntropyIsPyTorchs) {
  LOCKSTEP_NEEDS_ORACLE();
  torch::manual_seed(22);
  LossFile file;
  const auto positive = torch::tensor({1.0F, 3.0F, 0.5F});
  for (const auto uncertain : {Uncertain::ignore, Uncertain::zero, Uncertain::one}) {
    for (const double gamma : {0.0, 0.5, 2.0}) {
      for (const bool weighs : {false, true}) {
        BinaryCrossEntropyOptions options{.focal_gamma = gamma, .uncertain = uncertain};
        json about{{"loss", "binary_cross_entropy"},
                   {"gamma", gamma},
                   {"uncertain", std::string(name_of(uncertain))}};
        if (weighs) {
          options.positive_weights = positive;
          about["positive_weights"] = numbers_in(positive);
        }
        for (const auto& counted : ways_to_count({kMany, kNumLabels})) {
          const auto scores = leaf({kMany, kNumLabels});
          const auto targets = some_labels({kMany, kNumLabels});
          file.add(about, scores, targets, counted,
                   binary_cross_entropy(scores, targets, options, counted),
                   binary_cross_entropy_weight(targets, options, counted));
        }
      }
    }
  }
  file.check();
}

TEST(TaskOracle, LossesOfRegressionArePyTorchs) {
  LOCKSTEP_NEEDS_ORACLE();
  torch::manual_seed(23);
  LossFile file;
  const std::pair<const char*, config::Criterion> kinds[] = {
      {"mse", config::Criterion::mse},
      {"mae", config::Criterion::mae},
      {"huber", config::Criterion::huber}};
  for (const auto& [name, kind] : kinds) {
    for (const auto& counted : ways_to_count({kMany, 3})) {
      const RegressionLossOptions options{.kind = kind, .huber_delta = 0.7};
      const auto scores = leaf({kMany, 3});
      const auto targets = torch::randn({kMany, 3});
      file.add({{"loss", name}, {"delta", 0.7}, {"count", kMany * 3}}, scores, targets,
               counted, regression_loss(scores, targets, options, counted),
               regression_weight(counted));
    }
  }
  file.check();
}

// The values of a task over three ranks with unequal shares, as JSON.
json values_of(const TaskCase& one, std::int64_t rows) {
  json values;
  test::with_communicators(test::Rig::local, 3, [&](comm::Communicator& c) {
    const std::int64_t ends[] = {0, rows / 5, rows / 5 * 2, rows};
    const auto share = [&](const Named& all) {
      Named some;
      for (const auto& [name, tensor] : all) {
        some.set(name, tensor.slice(0, ends[c.rank()], ends[c.rank() + 1]));
      }
      return some;
    };
    auto metrics = one.task->metrics();
    metrics.observe(share(one.outputs), share(one.batch));
    const auto all = metrics.values(c);
    if (c.rank() != 0) return;
    for (const auto& value : all) values[value.name] = value.value;
  });
  return values;
}

void check_metrics(const TaskCase& one, std::int64_t rows) {
  checkpoint::NamedTensors tensors;
  for (const auto& [name, tensor] : one.outputs) tensors.emplace_back(name, tensor);
  for (const auto& [name, tensor] : one.batch) tensors.emplace_back(name, tensor);
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "metrics.safetensors";
  checkpoint::write_safetensors(file, tensors);
  test::expect_oracle_agrees("task_metrics.py",
                             {one.name, file.string(), values_of(one, rows).dump()});
}

constexpr std::int64_t kSamples = 300;

TEST(TaskOracle, MetricsOfClassesAreScikitLearns) {
  LOCKSTEP_NEEDS_ORACLE();
  torch::manual_seed(24);
  auto targets = some_classes({kSamples});
  targets.masked_fill_(torch::rand({kSamples}).gt(0.9), -1);
  const auto task = make_classification(
      {.loss = {.ignore_index = -1},
       .num_classes = kNumClasses,
       .measured = {
           .metrics = {EvalMetric::top_k, EvalMetric::per_class, EvalMetric::f1,
                       EvalMetric::f1_micro, EvalMetric::f1_per_label,
                       EvalMetric::confusion, EvalMetric::perplexity, EvalMetric::auroc,
                       EvalMetric::auroc_micro, EvalMetric::auroc_per_label,
                       EvalMetric::average_precision,
                       EvalMetric::average_precision_micro,
                       EvalMetric::average_precision_per_label},
           .top_k = 2}});
  // Rounded, so that classes have samples with the same scores; of the scores of one
  // sample no two are alike, so that there is one best.
  const auto logits = torch::randn({kSamples, kNumClasses}).mul(2).round() +
                      torch::arange(kNumClasses).mul(0.125);
  check_metrics({"classes", task, {{"output", logits}}, {{"target", targets}}},
                kSamples);
}

TEST(TaskOracle, MetricsOfLabelsAreScikitLearns) {
  LOCKSTEP_NEEDS_ORACLE();
  torch::manual_seed(25);
  const auto task = make_multi_label(
      {.num_labels = kNumLabels,
       .measured = {.metrics = {EvalMetric::f1, EvalMetric::f1_micro,
                                EvalMetric::f1_per_label, EvalMetric::auroc,
                                EvalMetric::auroc_micro, EvalMetric::auroc_per_label,
                                EvalMetric::average_precision,
                                EvalMetric::average_precision_micro,
                                EvalMetric::average_precision_per_label}}});
  const auto scores =
      torch::randn({kSamples, kNumLabels}).mul(3).round().mul(0.5).add(0.125);
  check_metrics({"labels",
                 task,
                 {{"output", scores}},
                 {{"target", some_labels({kSamples, kNumLabels})}}},
                kSamples);
}

TEST(TaskOracle, MetricsOfNumbersAreScikitLearns) {
  LOCKSTEP_NEEDS_ORACLE();
  torch::manual_seed(26);
  const auto task = make_regression(
      {.fields = {.mask = "mask"},
       .num_values = 2,
       .measured = {.metrics = {EvalMetric::mae, EvalMetric::rmse, EvalMetric::r2}}});
  const auto targets = torch::randn({kSamples, 2}).add(3);
  check_metrics(
      {"numbers",
       task,
       {{"output", targets + 0.3 * torch::randn({kSamples, 2})}},
       {{"target", targets}, {"mask", some_mask({kSamples, 2}).to(torch::kUInt8)}}},
      kSamples);
}

TEST(TaskOracle, PerplexityAndBitsPerByteFollowFromPyTorchsLoss) {
  LOCKSTEP_NEEDS_ORACLE();
  torch::manual_seed(27);
  const auto task = make_language_model({.fields = {.mask = "span"},
                                         .bytes = "bytes",
                                         .vocabulary = kNumClasses,
                                         .per_sample = kLength});
  check_metrics({"tokens",
                 task,
                 {{"output", torch::randn({kSamples, kLength, kNumClasses})}},
                 {{"target", some_classes({kSamples, kLength})},
                  {"span", some_mask({kSamples, kLength}).to(torch::kUInt8)},
                  {"bytes", torch::randint(1, 9, {kSamples, kLength}, torch::kInt64)}}},
                kSamples);
}

}  // namespace
}  // namespace lockstep::task
