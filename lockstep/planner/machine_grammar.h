#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"

// Machines by name: "8xa100-40", "1xrtx4090", "h100", "cpu-32", and "2x(4xh100)" for
// two hosts of four GPUs each.
namespace lockstep::planner {

// Returns nothing if the words do not have this form. A GPU that is not known, or too
// many of them, throws Fault::config with a suggestion.
std::optional<hardware::Machine> machine_by_grammar(const std::string& words);

// Returns "a100-40", "rtx4090", ...: the GPUs of the grammar.
std::vector<std::string> grammar_gpus();

}  // namespace lockstep::planner
