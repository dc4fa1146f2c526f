#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/load.h"

namespace lockstep::config {

// A knob that does something only beside certain values of others: what its line in
// describe() says.
struct Need {
  std::string key;  // "optim.momentum"
  // Conditions on other knobs: "optim.name=sgd|lion" (one of these; of a list: in it),
  // "schedule.name!=constant" (none of these) and "parallel.ranks>1", joined by " and
  // "; one such group of several, joined by " or ", is enough.
  std::string_view when;
};

// Returns all needs, by section.
std::vector<Need> needs();

// Returns a line for each knob that a user set (in a recipe, a variable or on the
// command line) and that a run with these knobs does not use. `resolved` has no auto
// left. A recipe that spells out every knob, as config.yaml of a run does, is not taken
// to ask for those that have their default.
std::vector<std::string> unused_knobs(const Loaded& resolved);

}  // namespace lockstep::config
