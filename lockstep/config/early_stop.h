#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class BetterMode { automatic, min, max };

constexpr std::array<std::string_view, 3> names_of(BetterMode) {
  return {"auto", "min", "max"};
}

struct EarlyStopConfig {
  std::int64_t patience = 0;
  std::string metric = "auto";
  double min_delta = 0;
  BetterMode mode = BetterMode::automatic;
  double divergence = 0;
};

template <typename Visitor>
void describe(EarlyStopConfig& c, Visitor& v) {
  v.field("patience", c.patience,
          {.help = "Training ends after so many evaluations in a row that were no "
                   "better than the best; 0: it does not.",
           .range = count_from(0)});
  v.field("metric", c.metric,
          {.help = "What is watched, and what the best weights are the best in: loss, "
                   "or a metric that an evaluation computes; auto: the task's primary "
                   "one."});
  v.field("min_delta", c.min_delta,
          {.help = "An evaluation is better only if it is so by more than this.",
           .range = at_least(0),
           .needs = "early_stop.patience>0 or checkpoint.save_best=true"});
  v.field("mode", c.mode,
          {.help = "What is better: min or max; auto: what is of the metric.",
           .task_decides = true});
  v.field("divergence", c.divergence,
          {.help = "Training ends when its loss, smoothed over the lines of metrics, "
                   "is so many times its minimum so far, or NaN; 0: "
                   "it does not.",
           .range = at_least(0)});
}

}  // namespace lockstep::config
