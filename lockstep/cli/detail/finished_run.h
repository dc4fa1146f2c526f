#pragma once

#include <optional>
#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/launcher/job.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {

// Whether a run in that state has come to its end. One that train.max_time has ended is
// done, but not over.
bool is_over(const monitor::RunDirectory& run, monitor::RunState state);

// A command that is repeated for a run that has come to its end: says so, and how to
// extend the run or to begin anew; nothing is changed. Returns the exit status; nothing
// if there is no such run, or if it is asked for more than it has done.
//
// Throws Fault::config if more is asked for and there is no checkpoint to go on from,
// or if it is to begin anew (--resume never) or to go on from elsewhere (--resume
// PATH): what it has would be lost among what comes.
std::optional<int> say_if_over(const planner::Plan& plan, const Arguments& arguments,
                               Context& context);

// What goes on with this run, for a shell: what was typed, variables included, and the
// directory where that did not name it. A recipe that can not be read again, or words
// that want no checkpoint, are left for the config that the run has kept.
std::string resume_command(const planner::Plan& plan, const Arguments& arguments,
                           const monitor::RunDirectory& run, const Context& context);

// The last lines of a run that is not over: where it is kept, what was saved of it and
// the command that goes on with it. Who was told of a failure need not be told that
// nothing was saved.
void say_how_to_resume(const planner::Plan& plan, const Arguments& arguments,
                       const monitor::RunDirectory& run,
                       const launcher::JobResult& result, Context& context);

// The same of one that has diverged: going on with the same knobs would not help, and
// its last checkpoints may hold numbers that are none.
void say_how_it_diverged(const config::Config& config, const monitor::RunDirectory& run,
                         Context& context);

}  // namespace lockstep::cli
