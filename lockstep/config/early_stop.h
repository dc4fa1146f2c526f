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
          {.help = "Patience: stop after this many evaluations in a row without "
                   "improvement; 0: off.",
           .range = count_from(0)});
  v.field("metric", c.metric,
          {.help = "The metric that is monitored for early stopping and for the best "
                   "weights: loss, or one that an evaluation computes; auto: the "
                   "task's primary metric."});
  v.field("min_delta", c.min_delta,
          {.help = "The least improvement that counts (min_delta).",
           .range = at_least(0),
           .needs = "early_stop.patience>0 or checkpoint.save_best=true"});
  v.field("mode", c.mode,
          {.help = "Whether lower (min) or higher (max) is better; auto: known from "
                   "the metric.",
           .task_decides = true});
  v.field("divergence", c.divergence,
          {.help = "Stop when the smoothed training loss exceeds its minimum by this "
                   "factor, or is NaN; 0: off.",
           .range = at_least(0)});
}

}  // namespace lockstep::config
