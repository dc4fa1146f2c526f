#pragma once

#include "lockstep/planner/cost.h"

namespace lockstep::planner {

// Returns how far the passes of a model that were tried on this machine's processor are
// from what is predicted for them, for a first run on its CPU; none if there were no
// trials, or on another processor.
std::vector<Correction::Trial> factors_of_trials(const run::ModelDescription& model,
                                                 const hardware::Machine& machine);

}  // namespace lockstep::planner
