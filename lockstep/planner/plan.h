#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/load.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/planner/cost.h"
#include "lockstep/run/model_description.h"

namespace lockstep::planner {

// One `auto` that was filled in.
struct Choice {
  std::string key;      // "precision.mode"
  std::string value;    // "bf16", as a recipe spells it
  std::string because;  // one short sentence with numbers
};

// The cost of a candidate, and why it was not taken: "" for the one that was.
struct CandidateOutcome {
  Prediction prediction;
  std::string lost;
};

// A variable that the ranks get, unless the user has set it.
struct Variable {
  std::string name;
  std::string value;
  std::string because;
};

// The facts that a plan may use besides the configuration and the machine.
struct Knowledge {
  std::optional<run::ModelDescription> model;
  std::string no_model;      // why it is not known
  bool worker_died = false;  // over the question, which should not happen
  Correction correction;
  std::vector<std::string> set_variables;  // names, of the environment
};

struct Plan {
  config::Loaded config;  // no auto left; the chosen knobs have Origin::planner
  std::vector<Choice> choices;
  // The following is set only where the model is known.
  std::string model;
  std::optional<Prediction> prediction;      // of the chosen candidate
  std::string bottleneck;                    // "compute", "data loading", ...
  std::string limit_because;                 // its limit: "0.9 x 80.0 GiB"
  Correction correction;                     // that is in it
  std::vector<CandidateOutcome> candidates;  // the best first
  std::vector<Scaling> scaling;
  std::optional<double> seconds;   // to the end of training
  double flops_per_sample = 0;     // of the model, forward and backward
  double peak_flops = 0;           // a second, of all devices
  std::vector<std::string> hints;  // other choices, and their effect

  std::vector<Variable> environment;
  std::vector<std::string> notes;  // sentences that a user should know
};

// Fills in every `auto` for this machine. A knob that was set is kept, or refused: a
// knob that the machine can not give is Fault::hardware if a device is missing or too
// small, else Fault::config. Without a model the batch and the ranks follow rules that
// need none.
//
// A pure function: no files, no clock, no devices; the machine may be made up.
Plan resolve(config::Loaded wanted, const hardware::Machine& machine,
             const Knowledge& knowledge = {});

// For --no-auto: throws Fault::config, with what was chosen, if a knob was left `auto`.
void refuse_auto(const Plan& plan);

// Returns all candidates, the best first, whatever was requested; nothing without a
// model. It is for a user whose recipe was refused.
std::vector<CandidateOutcome> survey(config::Loaded wanted,
                                     const hardware::Machine& machine,
                                     const Knowledge& knowledge);

// Returns plan.json of docs/run_directory.md.
std::string to_json(const Plan& plan);

}  // namespace lockstep::planner
