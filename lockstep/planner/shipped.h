#pragma once

#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"
#include "lockstep/run/model_description.h"

// Descriptions that are part of the program: models/ and machines/ in this folder.
namespace lockstep::planner {

std::vector<std::string> shipped_models();    // "gpt2-124m", ...
std::vector<std::string> shipped_machines();  // "4xl4", ...

// Throws Fault::config for an unknown name, with a suggestion.
run::ModelDescription shipped_model(const std::string& name);
// Takes any machine of the grammar, too (machine_grammar.h).
hardware::Machine shipped_machine(const std::string& name);

}  // namespace lockstep::planner
