#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "lockstep/base/units.h"
#include "lockstep/config/auto.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// A loss or a gradient is a NaN or an infinity.
enum class OnNonfinite { stop, skip };

constexpr std::array<std::string_view, 2> names_of(OnNonfinite) {
  return {"stop", "skip"};
}

// Selects whether a step is launched as a whole, by CUDA graphs that hold it. The
// planner turns auto into if_possible on a GPU: whether it is possible shows when steps
// are made.
enum class Graph { automatic, on, off, if_possible };

constexpr std::array<std::string_view, 4> names_of(Graph) {
  return {"auto", "on", "off", "if_possible"};
}

// Training ends after `steps` or after `epochs`: one of them is a number above 0, and
// the planner sets the other to 0, which means "not the measure".
struct TrainConfig {
  Auto<std::int64_t> steps;
  Auto<std::int64_t> epochs;
  units::Duration max_time{0};
  std::int64_t limit_train_batches = 0;
  std::int64_t limit_eval_batches = 0;
  std::int64_t log_every = 50;
  bool metrics = true;
  bool anomaly = false;
  bool deterministic = false;
  Graph graph = Graph::automatic;
  OnNonfinite on_nonfinite = OnNonfinite::stop;
  std::int64_t max_skipped = 10;
  std::int64_t fast_dev_run = 0;
  std::int64_t overfit_batches = 0;
};

template <typename Visitor>
void describe(TrainConfig& c, Visitor& v) {
  v.field("steps", c.steps,
          {.help = "Optimizer steps to train for; 0: as many as train.epochs gives.",
           .range = count_from(0),
           .unit = Unit::steps});
  v.field("epochs", c.epochs,
          {.help = "Epochs to train for; 0: as set by train.steps.",
           .range = count_from(0),
           .unit = Unit::epochs});
  v.field("max_time", c.max_time,
          {.help = "Time limit: stop at the next step after this time; 0s: no limit."});
  v.field("limit_train_batches", c.limit_train_batches,
          {.help = "Limit of training batches of an epoch; 0: all samples.",
           .range = count_from(0),
           .unit = Unit::batches});
  v.field("limit_eval_batches", c.limit_eval_batches,
          {.help = "Limit of batches of an evaluation; 0: all samples.",
           .range = count_from(0),
           .unit = Unit::batches});
  v.field("log_every", c.log_every,
          {.help = "Steps between two lines of training metrics.",
           .range = count_from(1),
           .unit = Unit::steps,
           .affects = Affects::output});
  v.field(
      "metrics", c.metrics,
      {.help = "Compute metrics while training, such as accuracy, not only the loss.",
       .affects = Affects::output});
  v.field(
      "anomaly", c.anomaly,
      {.help =
           "Anomaly detection: name the operation whose gradient is not finite; slow.",
       .affects = Affects::speed});
  v.field("deterministic", c.deterministic,
          {.help = "Deterministic algorithms on a GPU: the same bits on every run, "
                   "instead of the fastest algorithms. A CPU is always deterministic.",
           .affects = Affects::speed,
           .needs = "parallel.device=cuda"});
  v.field("graph", c.graph,
          {.help = "CUDA graphs: launch a step as a whole instead of kernel by kernel; "
                   "the same bits. if_possible: where shapes are static and nothing "
                   "looks inside a step; on: the same, or an error that says why not.",
           .affects = Affects::speed,
           .needs = "parallel.device=cuda"});
  v.field("on_nonfinite", c.on_nonfinite,
          {.help = "When a loss or gradient is NaN or infinite: stop, and say where; "
                   "or skip the update and continue (each step outside a CUDA graph "
                   "then waits for its gradients)."});
  v.field("max_skipped", c.max_skipped,
          {.help = "Of skip: stop after this many skipped steps in a row; 0: never.",
           .range = count_from(0),
           .unit = Unit::steps,
           .needs = "train.on_nonfinite=skip"});
  v.field("fast_dev_run", c.fast_dev_run,
          {.help = "Fast dev run: train and evaluate on this many batches only, to see "
                   "that everything works; 0: off.",
           .range = count_from(0),
           .unit = Unit::batches});
  v.field("overfit_batches", c.overfit_batches,
          {.help = "Overfit the first n batches, and evaluate on them: a model that "
                   "cannot learn these by heart has a bug; 0: off.",
           .range = count_from(0),
           .unit = Unit::batches});
}

}  // namespace lockstep::config
