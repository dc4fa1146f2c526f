#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/auto.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class TaskName {
  automatic,
  classification,
  multi_label,
  regression,
  language_model,
  multi_task,
};

constexpr std::array<std::string_view, 6> names_of(TaskName) {
  return {"auto",       "classification", "multi_label",
          "regression", "language_model", "multi_task"};
}

// The tasks that a part of multi_task may be.
enum class PartKind { classification, multi_label, regression, language_model };

constexpr std::array<std::string_view, 4> names_of(PartKind) {
  return {"classification", "multi_label", "regression", "language_model"};
}

enum class Criterion {
  automatic,
  cross_entropy,
  focal,
  binary_cross_entropy,
  mse,
  mae,
  huber,
};

constexpr std::array<std::string_view, 7> names_of(Criterion) {
  return {"auto", "cross_entropy", "focal", "binary_cross_entropy",
          "mse",  "mae",           "huber"};
}

// The meaning of a label of -1.
enum class Uncertain { ignore, zero, one };

constexpr std::array<std::string_view, 3> names_of(Uncertain) {
  return {"ignore", "zero", "one"};
}

// The condition of knobs for labels, which a task of `auto` has only through its parts.
inline constexpr std::string_view kLabels =
    "task.criterion=binary_cross_entropy or "
    "task.criterion=auto|focal and task.name=multi_label|multi_task or "
    "task.criterion=auto|focal and task.parts!={}";

struct TaskConfig {
  TaskName name = TaskName::automatic;
  Criterion criterion = Criterion::automatic;
  std::string primary;
  double label_smoothing = 0;
  double focal_gamma = 2;
  double huber_delta = 1;
  Auto<std::int64_t> ignore_index;
  std::vector<double> positive_weights;
  Uncertain uncertain = Uncertain::ignore;
  std::map<std::string, PartKind> parts;
  std::map<std::string, double> loss;
  std::map<std::string, double> loss_final;
  std::int64_t loss_ramp_steps = 0;
};

// The knobs of multi_task.
template <typename Visitor>
void describe_parts(TaskConfig& c, Visitor& v) {
  v.field("parts", c.parts,
          {.help = "Of multi_task: its parts by name, each with the task that it is; "
                   "its output of the model and its target in the data set have the "
                   "same name.",
           .needs = "task.name=multi_task|auto"});
  v.field("loss", c.loss,
          {.help = "Of multi_task: the weight of each part's loss in the training loss "
                   "(default: 1).",
           .range = at_least(0),
           .needs = "task.name=multi_task|auto"});
  v.field("loss_final", c.loss_final,
          {.help = "Of multi_task: the weights at the end of task.loss_ramp_steps "
                   "(default: unchanged).",
           .range = at_least(0),
           .needs = "task.name=multi_task|auto and task.loss_ramp_steps>0"});
  v.field(
      "loss_ramp_steps", c.loss_ramp_steps,
      {.help =
           "Of multi_task: steps of the linear ramp from task.loss to task.loss_final.",
       .range = count_from(0),
       .unit = Unit::steps,
       .needs = "task.name=multi_task|auto and task.loss_final!={}"});
}

template <typename Visitor>
void describe(TaskConfig& c, Visitor& v) {
  v.field("name", c.name,
          {.help = "What the model learns; auto: multi_task if task.parts has any, "
                   "language_model for tokens, regression for targets that are not "
                   "whole numbers, else classification.",
           .task_decides = true});
  v.field("criterion", c.criterion,
          {.help = "The loss; auto: cross_entropy for classes and tokens, "
                   "binary_cross_entropy for labels, mse for regression. With several "
                   "parts it applies to those that it fits.",
           .task_decides = true});
  v.field("primary", c.primary,
          {.help = "The metric that best checkpoint, early stopping, plateau and "
                   "reports follow: loss, or one that an evaluation computes; empty: "
                   "the task's own."});
  v.field("label_smoothing", c.label_smoothing,
          {.help = "Label smoothing: share of the target's probability that is spread "
                   "over all classes while training.",
           .range = from_to_below(0, 1),
           .needs = "task.criterion=auto|cross_entropy"});
  v.field("focal_gamma", c.focal_gamma,
          {.help = "Focal loss: gamma, which lowers the weight of well-classified "
                   "targets; 0: cross-entropy.",
           .range = at_least(0),
           .needs = "task.criterion=focal"});
  v.field("huber_delta", c.huber_delta,
          {.help = "Huber loss: delta, above which errors count linearly, not squared.",
           .range = above(0),
           .needs = "task.criterion=huber"});
  v.field("ignore_index", c.ignore_index,
          {.help = "Targets of this class are ignored, as PyTorch's ignore_index; "
                   "auto: the data set's, if it has one.",
           .task_decides = true,
           .needs = "task.criterion=auto|cross_entropy|focal"});
  v.field("positive_weights", c.positive_weights,
          {.help = "Of multi_label: weight of the positive examples of each label, as "
                   "PyTorch's pos_weight; empty: 1.",
           .range = above(0),
           .needs = kLabels});
  v.field(
      "uncertain", c.uncertain,
      {.help =
           "Of multi_label: an uncertain label (-1) is ignored, or taken as 0 or as 1.",
       .needs = kLabels});
  describe_parts(c, v);
}

}  // namespace lockstep::config
