#pragma once

#include <optional>
#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {

// A command that is repeated for a run that has come to its end: says so, and how to
// extend the run or to begin anew; nothing is changed. Returns the exit status; nothing
// if there is no such run, or if it is asked for more than it has done.
//
// Throws Fault::config if more is asked for and there is no checkpoint to go on from.
std::optional<int> say_if_over(const planner::Plan& plan, const Arguments& arguments,
                               Context& context);

// What goes on with this run, for a shell: the words that were typed, and the directory
// where they did not name it. A recipe that can not be read again, or words that want
// no checkpoint, are left for the config that the run has kept.
std::string resume_command(const planner::Plan& plan, const Arguments& arguments,
                           const monitor::RunDirectory& run, const Context& context);

// The last lines of a run that is not over: where it is kept, what was saved of it and
// the command that goes on with it. Who was told of a failure need not be told that
// nothing was saved.
void say_how_to_resume(const planner::Plan& plan, const Arguments& arguments,
                       const monitor::RunDirectory& run, Context& context, bool failed);

}  // namespace lockstep::cli
