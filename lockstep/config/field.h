#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string_view>

namespace lockstep::config {

// The effect of a change of a knob.
enum class Affects {
  results,  // the numbers that training computes
  speed,    // only time or memory
  output,   // only files and displays
};

// The unit of a number. Values of `bytes` may be written as 25MB or 1.5GiB.
enum class Unit {
  none,
  bytes,
  steps,
  epochs,
  samples,
  batches,
  threads,
  layers,
  units
};

// The values that a number may have. The bounds belong to the range unless they are
// open.
struct Range {
  double low = -std::numeric_limits<double>::infinity();
  double high = std::numeric_limits<double>::infinity();
  bool low_is_open = false;
  bool high_is_open = false;
};

constexpr Range above(double low) {
  return {.low = low, .low_is_open = true};
}
constexpr Range at_least(double low) {
  return {.low = low};
}
constexpr Range between(double low, double high) {
  return {.low = low, .high = high};
}
// low <= x < high
constexpr Range from_to_below(double low, double high) {
  return {.low = low, .high = high, .high_is_open = true};
}

// Counts of steps, epochs and samples: times the largest batch they stay below 2^63.
inline constexpr double kLargestCount = 1e11;

constexpr Range count_from(double low) {
  return {.low = low, .high = kLargestCount};
}

// A word that may stand for one number, for example `epoch` in eval.every.
struct Word {
  std::string_view text;
  std::int64_t value = 0;
};

// The attributes that describe() gives a knob beside its name and its member.
struct Field {
  std::string_view help;
  Range range = {};
  Unit unit = Unit::none;
  Affects affects = Affects::results;
  std::span<const std::string_view> choices = {};  // of a string; enums bring their own
  std::optional<Word> word = {};
  // True if its `auto` stays until the data set is open and task and model are made;
  // all others are the planner's to fill in.
  bool task_decides = false;
  // Conditions on other knobs, without which this one does nothing (config/needs.h says
  // how they are written); empty: it is always used.
  std::string_view needs = {};
  // True if its value names a file, an address or a program: a recipe that comes from
  // another machine may not set it.
  bool is_local = false;
};

// The condition of knobs for what ranks exchange.
inline constexpr std::string_view kPeers = "parallel.ranks>1 or comm.backend=modelled";

}  // namespace lockstep::config
