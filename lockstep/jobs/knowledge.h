#pragma once

#include <string>
#include <vector>

#include "lockstep/config/load.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/caller.h"
#include "lockstep/planner/plan.h"

namespace lockstep::jobs {

// Returns what is known of the model of a recipe on this machine: what the worker says
// about it, kept in the state directory, how right predictions were so far, and which
// variables are set. Never fails: what could not be found out is said in no_model.
planner::Knowledge gather_knowledge(const config::Loaded& wanted,
                                    const hardware::Machine& machine,
                                    const Caller& caller);

// Returns whether what a model was tried to take is that of a machine on which others
// took so much: it is not kept, so that the next plan tries again.
bool is_of_busy_machine(const run::ModelDescription& model, double others_share);

// Returns the names of the variables of the environment.
std::vector<std::string> set_variables(const Caller& caller);

// What is predicted.
struct PredictedRun {
  const run::ModelDescription& model;
  const config::Config& config;
  const hardware::Machine& machine;
};

// Returns what past runs on this machine say of predictions, from the state directory.
planner::Correction correction_for(const PredictedRun& run, const Caller& caller);

}  // namespace lockstep::jobs
