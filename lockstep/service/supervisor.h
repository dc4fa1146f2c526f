#pragma once

#include "lockstep/jobs/caller.h"
#include "lockstep/service/attempt.h"

namespace lockstep::service {

// Runs one attempt of a job to its end: plans, opens or takes up its run directory, and
// runs the launcher. SIGTERM stops it with a checkpoint. How it ended is in the job's
// folder. Returns the exit status: 0, too, where another supervisor has this attempt or
// has had it.
int supervise(const JobFolder& folder, int attempt, const jobs::Caller& caller);

// Ends an attempt that has not begun, so that none will. Returns the exit status.
int never_begin(const JobFolder& folder, int attempt);

}  // namespace lockstep::service
