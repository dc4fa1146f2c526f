#pragma once

#include <filesystem>
#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {

// What is known of the model of a recipe on this machine: what the worker says about
// it, kept in the state directory, how right predictions were so far, and which
// variables are set. Never fails: what could not be found out is said in no_model.
planner::Knowledge knowledge_of(const config::Loaded& wanted,
                                const hardware::Machine& machine,
                                const Context& context);

// Their names.
std::vector<std::string> set_variables(const Context& context);

// The runs of the past on this machine, from the state directory.
planner::Correction correction_for(const planner::Model& model,
                                   const config::Config& config,
                                   const hardware::Machine& machine,
                                   const Context& context);

// A run that came to its end.
struct Finished {
  const planner::Plan& plan;
  const planner::Knowledge& knowledge;
  const hardware::Machine& machine;
  double started = 0;  // seconds since 1970
};

// Predicted and measured side by side, on context.err, in run.json, and in the state
// directory for the next prediction. A run that gave no numbers is left out. Never
// fails.
void compare_with_plan(const Finished& run, const monitor::RunDirectory& directory,
                       Context& context);

}  // namespace lockstep::cli
