#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Schedule {
  constant,
  linear,
  cosine,
  polynomial,
  step,
  multi_step,
  exponential,
  one_cycle,
  inverse_sqrt,
  wsd,
  plateau,
  sweep,
};

constexpr std::array<std::string_view, 12> names_of(Schedule) {
  return {"constant",     "linear",     "cosine",      "polynomial",
          "step",         "multi_step", "exponential", "one_cycle",
          "inverse_sqrt", "wsd",        "plateau",     "sweep"};
}

enum class ScheduleUnit { step, epoch };

constexpr std::array<std::string_view, 2> names_of(ScheduleUnit) {
  return {"step", "epoch"};
}

enum class Goal { automatic, min, max };

constexpr std::array<std::string_view, 3> names_of(Goal) {
  return {"auto", "min", "max"};
}

struct ScheduleConfig {
  Schedule name = Schedule::constant;
  ScheduleUnit unit = ScheduleUnit::step;
  std::int64_t warmup_steps = 0;
  double warmup_epochs = 0;
  double final_ratio = 0.0;
  double power = 1.0;
  std::int64_t step_size = 0;
  std::vector<int> milestones;
  double gamma = 0.1;
  double rise = 0.3;
  double start_ratio = 0.04;
  double decay_share = 0.1;
  Goal goal = Goal::automatic;
  std::int64_t patience = 10;
  double threshold = 1e-4;
  std::int64_t cooldown = 0;
};

// The knobs that only some of the schedules have.
template <typename Visitor>
void describe_shapes(ScheduleConfig& c, Visitor& v) {
  v.field("power", c.power,
          {.help = "Power of polynomial; 1 is linear.",
           .range = above(0),
           .needs = "schedule.name=polynomial"});
  v.field("step_size", c.step_size,
          {.help = "Of step: steps or epochs (schedule.unit) between two drops.",
           .range = count_from(0),
           .needs = "schedule.name=step"});
  v.field("milestones", c.milestones,
          {.help = "Of multi_step: the steps or epochs (schedule.unit) of the drops.",
           .range = count_from(1),
           .needs = "schedule.name=multi_step"});
  v.field("gamma", c.gamma,
          {.help = "Factor of a drop: at each drop of step, multi_step and plateau, at "
                   "every step or epoch (schedule.unit) of exponential.",
           .range = {.low = 0, .high = 1, .low_is_open = true},
           .needs = "schedule.name=step|multi_step|plateau|exponential"});
  v.field("rise", c.rise,
          {.help = "Of one_cycle: share of the steps in which the learning rate rises.",
           .range = {.low = 0, .high = 1, .low_is_open = true, .high_is_open = true},
           .needs = "schedule.name=one_cycle"});
  v.field("start_ratio", c.start_ratio,
          {.help = "Of one_cycle and sweep: learning rate at its start, relative to "
                   "optim.lr.",
           .range = between(0, 1),
           .needs = "schedule.name=one_cycle|sweep"});
  v.field(
      "decay_share", c.decay_share,
      {.help =
           "Of wsd: share of the run, at its end, in which the learning rate falls.",
       .range = between(0, 1),
       .needs = "schedule.name=wsd"});
}

template <typename Visitor>
void describe(ScheduleConfig& c, Visitor& v) {
  v.field("name", c.name,
          {.help = "The learning-rate schedule, after warm-up; sweep: up to optim.lr, "
                   "by a constant factor at every step (`lockstep find-lr`)."});
  v.field(
      "unit", c.unit,
      {.help =
           "The learning rate changes at every step, or at the start of every epoch.",
       .needs = "schedule.name!=constant|plateau"});
  v.field(
      "warmup_steps", c.warmup_steps,
      {.help = "Warm-up steps, in which the learning rate rises from 0 to optim.lr.",
       .range = count_from(0),
       .unit = Unit::steps});
  v.field("warmup_epochs", c.warmup_epochs,
          {.help = "Warm-up in epochs; the learning rate still rises at every step.",
           .range = count_from(0),
           .unit = Unit::epochs});
  v.field(
      "final_ratio", c.final_ratio,
      {.help =
           "Learning rate at the end, relative to optim.lr; the minimum of schedules "
           "without an end (step, multi_step, exponential, inverse_sqrt, plateau).",
       .range = between(0, 1),
       .needs = "schedule.name!=constant|sweep"});
  describe_shapes(c, v);
  v.field("goal", c.goal,
          {.help = "Of plateau: what is monitored; auto: the task's primary metric; "
                   "min: the loss, which falls; max: the primary metric, which rises.",
           .task_decides = true,
           .needs = "schedule.name=plateau"});
  v.field(
      "patience", c.patience,
      {.help =
           "Of plateau: patience, the evaluations without improvement before a drop.",
       .range = count_from(0),
       .needs = "schedule.name=plateau"});
  v.field("threshold", c.threshold,
          {.help = "Of plateau: threshold, the relative improvement that counts.",
           .range = from_to_below(0, 1),
           .needs = "schedule.name=plateau"});
  v.field(
      "cooldown", c.cooldown,
      {.help = "Of plateau: cooldown, the evaluations after a drop that do not count.",
       .range = count_from(0),
       .needs = "schedule.name=plateau"});
}

}  // namespace lockstep::config
