#pragma once

#include <optional>

#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/caller.h"
#include "lockstep/planner/plan.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::jobs {

// A run that came to its end.
struct FinishedRun {
  const planner::Plan& plan;
  const planner::Knowledge& knowledge;
  const hardware::Machine& machine;
  double started = 0;  // seconds since 1970
  // The share of the cores that other processes took meanwhile (host_load.h).
  double others_share = 0;
};

// Puts what was predicted and what was measured side by side, in run.json and, for the
// next prediction, in the state directory. Nothing for a run that gave no numbers. A
// run on a busy machine is compared, but teaches nothing, and that is said. Never
// fails.
std::optional<run::Comparison> compare_with_plan(const FinishedRun& run,
                                                 const run::RunDirectory& directory,
                                                 const Caller& caller);

}  // namespace lockstep::jobs
