#pragma once

#include <string>

#include "lockstep/run/run_directory.h"

// The config and the plan of a run that is taken up again with other knobs. The old
// ones lie beside them (config.before.yaml, plan.before.json) until the run goes on by
// the new ones: an attempt that is refused leaves a directory whose config is that of
// its checkpoints.
namespace lockstep::run {

// The texts of the two files.
struct ProposedFiles {
  std::string config_yaml, plan_json;
};

void propose(const RunDirectory& run, const ProposedFiles& settings);

// The run goes on by what was proposed.
void accept_proposed(const RunDirectory& run);

// Puts the old ones back, unless the new ones were accepted. Returns whether there was
// something to put back.
bool take_back_proposed(const RunDirectory& run);

}  // namespace lockstep::run
