#include "lockstep/task/detail/kinds.h"

#include <algorithm>
#include <string>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::task::detail {
namespace {

using config::Criterion;
using config::EvalMetric;
using config::PartKind;
using Kinds = std::vector<PartKind>;

// Returns "a classification", "a classification and a multi_label".
std::string list_of(const Kinds& kinds) {
  std::vector<std::string> names;
  for (const auto kind : kinds) names.push_back(str("a ", name_of(kind), " task"));
  return text::join(names, " and ");
}

template <typename Enum>
std::vector<std::string> fitting(const Kinds& kinds) {
  std::vector<std::string> names;
  const auto all = names_of(Enum{});
  for (std::size_t i = 0; i < all.size(); ++i) {
    const auto one = static_cast<Enum>(i);
    if (std::any_of(kinds.begin(), kinds.end(),
                    [&](PartKind kind) { return fits(one, kind); })) {
      names.emplace_back(all[i]);
    }
  }
  return names;
}

template <typename Enum>
void check_fits(std::string_view knob, Enum value, const Kinds& kinds) {
  const auto names = fitting<Enum>(kinds);
  const auto name = std::string(name_of(value));
  if (std::find(names.begin(), names.end(), name) != names.end()) return;
  throw Error(Fault::config, knob, ": ", name, " is not for ", list_of(kinds),
              ", which has ", text::join(names, ", "),
              "; choose one of them, or another task.name");
}

// Throws, for a knob that was set and has no effect.
[[noreturn]] void refuse_unused(std::string_view knob, const Kinds& kinds) {
  throw Error(Fault::config, knob, ": would do nothing for ", list_of(kinds),
              "; leave it out, or choose another task.name");
}

}  // namespace

bool has_classes(PartKind kind) noexcept {
  return kind == PartKind::classification || kind == PartKind::language_model;
}

bool fits(Criterion criterion, PartKind kind) noexcept {
  switch (criterion) {
    case Criterion::automatic:
      return true;
    case Criterion::cross_entropy:
      return has_classes(kind);
    case Criterion::focal:
      return kind != PartKind::regression;
    case Criterion::binary_cross_entropy:
      return kind == PartKind::multi_label;
    case Criterion::mse:
    case Criterion::mae:
    case Criterion::huber:
      return kind == PartKind::regression;
  }
  return false;
}

bool fits(EvalMetric metric, PartKind kind) noexcept {
  switch (metric) {
    case EvalMetric::top_k:
    case EvalMetric::per_class:
    case EvalMetric::perplexity:
    case EvalMetric::confusion:
      return has_classes(kind);
    case EvalMetric::bits_per_byte:
      return kind == PartKind::language_model;
    case EvalMetric::mae:
    case EvalMetric::rmse:
    case EvalMetric::r2:
      return kind == PartKind::regression;
    default:  // F1 and those of ranking
      return kind != PartKind::regression;
  }
}

void check_used(const config::Config& config, const Kinds& kinds) {
  const auto any = [&](auto&& holds) {
    return std::any_of(kinds.begin(), kinds.end(), holds);
  };
  const auto& task = config.task;
  const bool classes = any(has_classes);
  const bool labels = any([](PartKind kind) { return kind == PartKind::multi_label; });
  check_fits("task.criterion", task.criterion, kinds);
  if (task.label_smoothing > 0 && !classes)
    refuse_unused("task.label_smoothing", kinds);
  if (!task.ignore_index.is_auto() && !classes)
    refuse_unused("task.ignore_index", kinds);
  if (!task.positive_weights.empty() && !labels)
    refuse_unused("task.positive_weights", kinds);
  for (const auto metric : config.eval.metrics) {
    check_fits("eval.metrics", metric, kinds);
  }
}

}  // namespace lockstep::task::detail
