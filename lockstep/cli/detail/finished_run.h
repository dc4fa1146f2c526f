#pragma once

#include <optional>
#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/launcher/job.h"
#include "lockstep/planner/plan.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::cli {

// Answers a command that is repeated for a run that has come to its end: says how to
// extend the run or to start over; nothing is changed. Returns the exit status; nothing
// if there is no such run, or if it is asked for more than it has done.
//
// Throws Fault::config if more is asked for and there is no checkpoint to resume from,
// or if it is to start over (--resume never) or to resume from elsewhere (--resume
// PATH): what it has would be lost among what comes.
std::optional<int> say_if_over(const planner::Plan& plan, const Arguments& arguments,
                               Context& context);

// A run with the words that started it.
struct TypedRun {
  const planner::Plan& plan;
  const Arguments& arguments;
  const run::RunDirectory& run;
};

// Returns the command that resumes this run, for a shell: as typed, with variables, and
// the directory where that did not name it. A recipe that can not be read again, or
// words that want no checkpoint, are left for the config that the run has kept.
std::string resume_command(const TypedRun& typed, const Context& context);

// Prints the last lines of a run that is not over: where it is kept, what was saved of
// it and the command that resumes it. After a failure it does not say that nothing was
// saved.
void say_how_to_resume(const TypedRun& typed, const launcher::JobResult& result,
                       Context& context);

// Prints the same for a run that has diverged: resuming with the same knobs would not
// help, and its last checkpoints may hold NaN.
void say_how_it_diverged(const config::Config& config, const run::RunDirectory& run,
                         Context& context);

}  // namespace lockstep::cli
