#pragma once

#include <optional>

#include "lockstep/config/load.h"
#include "lockstep/run/events.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::jobs {

// A run that has come to its end.
struct OverRun {
  run::RunDirectory run;
  run::RunDone done;
};

// Returns the run that the config names if it has come to its end and is asked for no
// more than it has done: starting it again changes nothing. Nothing if there is no such
// run, or if it is to train on.
//
// Throws Fault::config if more is asked for and there is no checkpoint to resume from,
// or if it is to start over (checkpoint.resume=never) or to resume from elsewhere: what
// it has would be lost among what comes.
std::optional<OverRun> find_over(const config::Loaded& wanted);

}  // namespace lockstep::jobs
