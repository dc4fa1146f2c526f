#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/config/field.h"

namespace lockstep::config {

// A longer range would make a trace that no viewer opens.
inline constexpr std::int64_t kMostProfiledSteps = 10'000;

// The first and last step that are timed, counted from 1 as in metrics.jsonl.
struct StepRange {
  std::int64_t first = 1;
  std::int64_t last = 1;

  bool has(std::int64_t step) const noexcept { return step >= first && step <= last; }
};

// Parses "10:20", or "12" for one step; empty if it is neither, or runs backwards, or
// has more than kMostProfiledSteps.
std::optional<StepRange> parse_step_range(std::string_view text);

struct ProfileConfig {
  std::string steps;  // parse_step_range(), or "": none
};

template <typename Visitor>
void describe(ProfileConfig& c, Visitor& v) {
  v.field("steps", c.steps,
          {.help = "Steps whose phases are timed, first:last, both included and "
                   "counted from 1: trace.json in the run directory; empty: none.",
           .affects = Affects::output});
}

}  // namespace lockstep::config
