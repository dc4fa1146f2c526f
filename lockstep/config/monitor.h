#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

enum class Sink { console, jsonl };

constexpr std::array<std::string_view, 2> names_of(Sink) {
  return {"console", "jsonl"};
}

enum class Verbosity { quiet, normal, debug };

constexpr std::array<std::string_view, 3> names_of(Verbosity) {
  return {"quiet", "normal", "debug"};
}

struct MonitorConfig {
  std::vector<Sink> sinks = {Sink::console, Sink::jsonl};
  Verbosity verbosity = Verbosity::normal;
};

template <typename Visitor>
void describe(MonitorConfig& c, Visitor& v) {
  v.field("sinks", c.sinks,
          {.help = "Where metrics go: the terminal, metrics.jsonl.",
           .affects = Affects::output});
  v.field("verbosity", c.verbosity,
          {.help = "How much is said on the terminal.", .affects = Affects::output});
}

}  // namespace lockstep::config
