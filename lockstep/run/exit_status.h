#pragma once

#include "lockstep/run/run_directory.h"

namespace lockstep::run {

// Returns the exit status of a run that a signal has stopped: kExitStopped where a
// rerun resumes it from a checkpoint, else 128 + signal (base/error.h, stop_status()).
// `resumes` says whether checkpoint.resume allows it.
int exit_of_stop(const RunDirectory& run, bool resumes, int signal);

}  // namespace lockstep::run
