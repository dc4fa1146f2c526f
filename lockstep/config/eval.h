#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/auto.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// The value of eval.every that a recipe spells `epoch`.
inline constexpr std::int64_t kEachEpoch = -1;

// Metrics beside the loss and those that a task always measures.
enum class EvalMetric {
  top_k,
  per_class,
  f1,
  auroc,
  perplexity,
  confusion,
  f1_micro,
  f1_per_label,
  auroc_micro,
  auroc_per_label,
  average_precision,
  average_precision_micro,
  average_precision_per_label,
  bits_per_byte,
  mae,
  rmse,
  r2,
};

constexpr std::array<std::string_view, 17> names_of(EvalMetric) {
  return {"top_k",
          "per_class",
          "f1",
          "auroc",
          "perplexity",
          "confusion",
          "f1_micro",
          "f1_per_label",
          "auroc_micro",
          "auroc_per_label",
          "average_precision",
          "average_precision_micro",
          "average_precision_per_label",
          "bits_per_byte",
          "mae",
          "rmse",
          "r2"};
}

// The words of a metric for those who read a run: the part of its values' names that
// tells it ("accuracy_class_3", "vqa_auroc"), and what it is.
struct MetricWords {
  std::string_view part;
  std::string_view help;
};

constexpr MetricWords words_of(EvalMetric metric) {
  constexpr std::string_view kAuroc = "Area under the ROC curve";
  constexpr std::string_view kAverage = "Area under the precision-recall curve";
  constexpr std::string_view kF1 = "Harmonic mean of precision and recall";
  switch (metric) {
    case EvalMetric::top_k:
      return {"_top_", "Share of samples whose class is among the k most likely"};
    case EvalMetric::per_class:
      return {"_class_", "Accuracy of one class"};
    case EvalMetric::perplexity:
      return {"perplexity", "exp of the mean cross-entropy of a token"};
    case EvalMetric::confusion:
      return {"confusion", "Samples of a true class that were predicted as another"};
    case EvalMetric::f1:
    case EvalMetric::f1_micro:
    case EvalMetric::f1_per_label:
      return {"f1", kF1};
    case EvalMetric::auroc:
    case EvalMetric::auroc_micro:
    case EvalMetric::auroc_per_label:
      return {"auroc", kAuroc};
    case EvalMetric::average_precision:
    case EvalMetric::average_precision_micro:
    case EvalMetric::average_precision_per_label:
      return {"average_precision", kAverage};
    case EvalMetric::bits_per_byte:
      return {"bits_per_byte", "Cross-entropy in bits for each byte of text"};
    case EvalMetric::mae:
      return {"mae", "Mean absolute error"};
    case EvalMetric::rmse:
      return {"rmse", "Root of the mean squared error"};
    default:
      return {"r2", "Coefficient of determination"};
  }
}

// Those of what a task measures unasked.
inline constexpr std::array<MetricWords, 1> kUnaskedWords = {
    {{"accuracy", "Share of correct predictions"}}};

struct EvalConfig {
  Auto<std::int64_t> every;  // steps; 0: only at the end; kEachEpoch
  std::vector<EvalMetric> metrics;
  std::int64_t top_k = 5;
  std::int64_t sanity_batches = 0;
  std::vector<std::string> prompts;
  std::int64_t prompt_tokens = 64;
};

template <typename Visitor>
void describe(EvalConfig& c, Visitor& v) {
  v.field(
      "every", c.every,
      {.help =
           "Steps between evaluations; epoch: after each epoch; 0: only at the end.",
       .range = count_from(0),
       .unit = Unit::steps,
       .affects = Affects::output,
       .word = Word{"epoch", kEachEpoch}});
  v.field(
      "metrics", c.metrics,
      {.help =
           "Metrics in addition to the loss and those that a task always computes: "
           "accuracy of classes and labels, perplexity of tokens, the primary metric.",
       .affects = Affects::output});
  v.field("top_k", c.top_k,
          {.help = "k of the metric top_k: a prediction counts as right if it is among "
                   "the k most likely.",
           .range = count_from(1),
           .affects = Affects::output,
           .needs = "eval.metrics=top_k"});
  v.field("sanity_batches", c.sanity_batches,
          {.help = "Sanity check: batches evaluated before the first step, so that an "
                   "error there shows at once; 0: none.",
           .range = count_from(0),
           .unit = Unit::batches,
           .affects = Affects::output});
  v.field(
      "prompts", c.prompts,
      {.help = "Prompts that the model continues before the first step and at each "
               "evaluation; the report shows them side by side. Needs data.tokenizer.",
       .affects = Affects::output,
       .needs = "model.name=gpt"});
  v.field("prompt_tokens", c.prompt_tokens,
          {.help = "New tokens for each prompt, decoded greedily.",
           .range = between(1, 1 << 20),
           .affects = Affects::output,
           .needs = "model.name=gpt"});
}

}  // namespace lockstep::config
