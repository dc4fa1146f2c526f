#pragma once

#include <cstdint>

#include "lockstep/config/field.h"

namespace lockstep::config {

// An average of the weights over the steps, which often generalizes better than the
// last weights.
struct EmaConfig {
  bool enabled = false;
  double decay = 0.999;
  bool warmup = true;
  std::int64_t every = 1;
  bool evaluate = true;
};

template <typename Visitor>
void describe(EmaConfig& c, Visitor& v) {
  v.field("enabled", c.enabled,
          {.help = "Keep an exponential moving average of the weights."});
  v.field(
      "decay", c.decay,
      {.help =
           "Decay of the average at an update; 0.999 averages over about 1000 updates.",
       .range = from_to_below(0, 1),
       .needs = "ema.enabled=true"});
  v.field("warmup", c.warmup,
          {.help = "A lower decay at first: at update n at most (1 + n) / (10 + n).",
           .needs = "ema.enabled=true"});
  v.field("every", c.every,
          {.help = "Steps between two updates of the average.",
           .range = count_from(1),
           .unit = Unit::steps,
           .needs = "ema.enabled=true"});
  v.field("evaluate", c.evaluate,
          {.help = "Evaluate the averaged weights instead of the last ones.",
           .needs = "ema.enabled=true"});
}

}  // namespace lockstep::config
