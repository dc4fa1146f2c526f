#pragma once

#include <string>
#include <vector>

#include "lockstep/config/load.h"
#include "lockstep/hardware/machine.h"

namespace lockstep::planner {

// One `auto` that was filled in.
struct Choice {
  std::string key;      // "precision.mode"
  std::string value;    // "bf16", as a recipe spells it
  std::string because;  // one short sentence with numbers
};

struct Plan {
  config::Loaded config;  // no auto left; the chosen knobs have Origin::planner
  std::vector<Choice> choices;
};

// Fills in every `auto` for this machine. What was asked for is kept, or refused: a
// knob that the machine can not give is Fault::hardware if a device is missing, else
// Fault::config. With allow_auto=false every `auto` that is left is refused, with what
// would have been chosen.
//
// A pure function: no files, no clock, no devices; the machine may be made up.
Plan resolve(config::Loaded wanted, const hardware::Machine& machine, bool allow_auto);

// {"version": 1, "choices": [{"key": ..., "value": ..., "because": ...}, ...]}
std::string to_json(const Plan& plan);

}  // namespace lockstep::planner
