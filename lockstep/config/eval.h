#pragma once

#include <cstdint>

#include "lockstep/config/auto.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// The value of eval.every that a recipe spells `epoch`.
inline constexpr std::int64_t kEachEpoch = -1;

struct EvalConfig {
  Auto<std::int64_t> every;  // steps; 0: only at the end; kEachEpoch
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
}

}  // namespace lockstep::config
