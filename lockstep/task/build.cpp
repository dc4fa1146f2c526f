#include "lockstep/task/build.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/task/classification.h"
#include "lockstep/task/detail/kinds.h"
#include "lockstep/task/language_model.h"
#include "lockstep/task/multi_label.h"
#include "lockstep/task/multi_task.h"
#include "lockstep/task/regression.h"

namespace lockstep::task {
namespace {

using config::Config;
using config::Criterion;
using config::PartKind;
using config::TaskName;
using data::SampleSpec;

// The data set's description of a target.
struct Target {
  std::string name;
  std::vector<std::int64_t> shape;
  torch::Dtype dtype;
  std::int64_t num_classes = 0;
  bool varies = false;  // then a batch has its mask

  bool is_floating() const { return c10::isFloatingType(dtype); }
  std::int64_t numel() const {
    return std::accumulate(shape.begin(), shape.end(), std::int64_t{1},
                           std::multiplies<>());
  }
};

// The inputs that a task is made from.
struct Plan {
  const Config& config;
  const SampleSpec& spec;
  Target target;
  Fields fields;
  MetricChoice measured;
  torch::Tensor class_weights = {};

  Criterion criterion(PartKind kind) const {
    const auto wanted = config.task.criterion;
    return detail::fits(wanted, kind) ? wanted : Criterion::automatic;
  }
};

const data::FieldSpec* find_field(const SampleSpec& spec, const std::string& name) {
  const auto found =
      std::find_if(spec.fields.begin(), spec.fields.end(),
                   [&](const auto& field) { return field.name == name; });
  return found == spec.fields.end() ? nullptr : &*found;
}

std::string field_or_none(const SampleSpec& spec, const std::string& name) {
  return find_field(spec, name) != nullptr ? name : "";
}

Fields fields_for(const SampleSpec& spec, const std::string& output,
                  const Target& target) {
  const auto mask = target.name + "_mask";
  return {.output = output,
          .target = target.name,
          .mask = target.varies ? mask : field_or_none(spec, mask),
          .weight = field_or_none(spec, target.name + "_weight")};
}

Target find_target(const SampleSpec& spec) {
  return {"target", spec.target_shape, spec.target_dtype, spec.num_classes,
          spec.target_varies};
}

Target find_target(const SampleSpec& spec, const std::string& part) {
  if (part == "target") return find_target(spec);
  if (const auto* field = find_field(spec, part)) {
    return {part, field->shape, field->dtype, field->num_classes, field->varies};
  }
  std::vector<std::string> names{"target"};
  for (const auto& field : spec.fields) names.push_back(field.name);
  throw Error(Fault::config, "task.parts: the data set has no field '", part,
              "' to be the target of this part; it has ", text::join(names, ", "),
              text::did_you_mean(part, names));
}

[[noreturn]] void refuse_target(const Plan& plan, PartKind kind,
                                std::string_view remedy) {
  throw Error(Fault::config, "task.name: ", name_of(kind), " cannot learn target '",
              plan.target.name, "', which is ", c10::toString(plan.target.dtype),
              " of shape ", at::IntArrayRef(plan.target.shape), "; ", remedy);
}

CrossEntropyOptions class_loss(const Plan& plan, PartKind kind) {
  const auto& task = plan.config.task;
  CrossEntropyOptions loss{.label_smoothing = task.label_smoothing,
                           .class_weights = plan.class_weights,
                           .ignore_index = plan.spec.ignore_index};
  if (plan.criterion(kind) == Criterion::focal) loss.focal_gamma = task.focal_gamma;
  if (!task.ignore_index.is_auto()) loss.ignore_index = task.ignore_index.value();
  if (plan.target.is_floating()) loss.ignore_index = {};  // shares have no index
  return loss;
}

std::shared_ptr<Task> classification(const Plan& plan) {
  constexpr auto kKind = PartKind::classification;
  const auto& target = plan.target;
  if (target.is_floating() && target.shape.empty()) {
    refuse_target(plan, kKind, "set task.name=regression for a number");
  }
  const auto shares = target.is_floating() ? target.shape.back() : 1;
  return make_classification({.fields = plan.fields,
                              .loss = class_loss(plan, kKind),
                              .num_classes = shares > 1 ? shares : target.num_classes,
                              .per_sample = target.numel() / shares,
                              .trains_metrics = plan.config.train.metrics,
                              .measured = plan.measured});
}

std::shared_ptr<Task> language_model(const Plan& plan) {
  constexpr auto kKind = PartKind::language_model;
  if (plan.target.is_floating()) {
    refuse_target(plan, kKind, "tokens are whole numbers: choose another task.name");
  }
  return make_language_model(
      {.fields = plan.fields,
       .bytes = field_or_none(plan.spec, plan.target.name + "_bytes"),
       .loss = class_loss(plan, kKind),
       .vocabulary = plan.target.num_classes,
       .per_sample = plan.target.numel(),
       .measured = plan.measured});
}

std::shared_ptr<Task> multi_label(const Plan& plan) {
  const auto& task = plan.config.task;
  if (plan.target.shape.empty()) {
    refuse_target(plan, PartKind::multi_label,
                  "it needs a number for each label: give the target a shape, or set "
                  "task.name=classification");
  }
  const auto labels = plan.target.shape.back();
  const auto weights = task.positive_weights.size();
  if (weights > 0 && static_cast<std::int64_t>(weights) != labels) {
    throw Error(Fault::config, "task.positive_weights: ", weights, " numbers, but '",
                plan.target.name, "' has ", labels, " labels; write one for each");
  }
  BinaryCrossEntropyOptions loss{.uncertain = task.uncertain};
  if (plan.criterion(PartKind::multi_label) == Criterion::focal) {
    loss.focal_gamma = task.focal_gamma;
  }
  if (weights > 0) {
    loss.positive_weights = torch::tensor(task.positive_weights, torch::kFloat32);
  }
  return make_multi_label({.fields = plan.fields,
                           .loss = std::move(loss),
                           .num_labels = labels,
                           .per_sample = plan.target.numel(),
                           .trains_metrics = plan.config.train.metrics,
                           .measured = plan.measured});
}

std::shared_ptr<Task> regression(const Plan& plan) {
  RegressionLossOptions loss{.huber_delta = plan.config.task.huber_delta};
  const auto criterion = plan.criterion(PartKind::regression);
  if (criterion != Criterion::automatic) loss.kind = criterion;
  const auto& target = plan.target;
  const auto numel = target.numel();
  return make_regression({.fields = plan.fields,
                          .loss = loss,
                          .num_values = target.varies ? numel / target.shape[0] : numel,
                          .per_sample = numel,
                          .measured = plan.measured});
}

std::shared_ptr<Task> make_one(PartKind kind, Plan plan) {
  std::erase_if(plan.measured.metrics,
                [&](auto metric) { return !detail::fits(metric, kind); });
  switch (kind) {
    case PartKind::classification:
      return classification(plan);
    case PartKind::multi_label:
      return multi_label(plan);
    case PartKind::regression:
      return regression(plan);
    case PartKind::language_model:
      return language_model(plan);
  }
  LOCKSTEP_CHECK(false, "no such kind of task");
  return nullptr;
}

PartKind kind_of(TaskName name, const SampleSpec& spec) {
  switch (name) {
    case TaskName::classification:
      return PartKind::classification;
    case TaskName::multi_label:
      return PartKind::multi_label;
    case TaskName::regression:
      return PartKind::regression;
    case TaskName::language_model:
      return PartKind::language_model;
    default:
      break;
  }
  if (c10::isFloatingType(spec.target_dtype)) return PartKind::regression;
  // Tokens with one target for all of them are classified.
  return spec.is_tokens() && !spec.target_shape.empty() ? PartKind::language_model
                                                        : PartKind::classification;
}

std::shared_ptr<Task> single(const Config& config, const SampleSpec& spec,
                             const torch::Tensor& class_weights) {
  const auto kind = kind_of(config.task.name, spec);
  const auto target = find_target(spec);
  detail::check_used(config, {kind});
  if (class_weights.defined() && !detail::has_classes(kind)) {
    throw Error(Fault::config, "data.class_weights: a ", name_of(kind),
                " task has no classes; leave them and data.balanced_loss out",
                kind == PartKind::multi_label
                    ? " (task.positive_weights says what a label weighs that is there)"
                    : "");
  }
  return make_one(
      kind, {.config = config,
             .spec = spec,
             .target = target,
             .fields = fields_for(spec, "output", target),
             .measured = {config.eval.metrics, config.eval.top_k, config.task.primary},
             .class_weights = class_weights});
}

// `named` is an entry of task.parts.
TaskPart make_part(const Config& config, const SampleSpec& spec,
                   const std::pair<const std::string, PartKind>& named) {
  const auto& [name, kind] = named;
  const auto& task = config.task;
  const auto weight = task.loss.find(name), last = task.loss_final.find(name);
  const auto target = find_target(spec, name);
  TaskPart part{.name = name};
  if (weight != task.loss.end()) part.coefficient = weight->second;
  if (last != task.loss_final.end()) part.final_coefficient = last->second;
  part.task =
      make_one(kind, {.config = config,
                      .spec = spec,
                      .target = target,
                      .fields = fields_for(spec, name, target),
                      .measured = {config.eval.metrics, config.eval.top_k, ""}});
  return part;
}

std::shared_ptr<Task> several(const Config& config, const SampleSpec& spec,
                              const torch::Tensor& class_weights) {
  std::vector<PartKind> kinds;
  for (const auto& [name, kind] : config.task.parts) kinds.push_back(kind);
  detail::check_used(config, kinds);
  if (class_weights.defined()) {
    throw Error(Fault::config,
                "data.class_weights: are of one target, but task.parts "
                "has its own; leave them and data.balanced_loss out");
  }
  MultiTaskOptions options{.ramp_steps = config.task.loss_ramp_steps,
                           .primary = config.task.primary};
  for (const auto& named : config.task.parts) {
    options.parts.push_back(make_part(config, spec, named));
  }
  return make_multi_task(std::move(options));
}

}  // namespace

std::shared_ptr<Task> make_task(const Config& config, const SampleSpec& spec,
                                const torch::Tensor& class_weights) {
  const bool has_parts =
      config.task.name == TaskName::multi_task ||
      (config.task.name == TaskName::automatic && !config.task.parts.empty());
  return has_parts ? several(config, spec, class_weights)
                   : single(config, spec, class_weights);
}

}  // namespace lockstep::task
