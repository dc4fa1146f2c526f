#pragma once

#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {

// Returns the recipe with the command line's knobs: options become knobs, --debug last
// and only where the user set nothing.
config::Loaded wanted_config(const Arguments& arguments, const Context& context);

// Returns one line for every choice of the planner, with its reason.
std::string plan_text(const planner::Plan& plan, bool color);

}  // namespace lockstep::cli
