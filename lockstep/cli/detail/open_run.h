#pragma once

#include <optional>

#include "lockstep/cli/command.h"
#include "lockstep/monitor/run_lock.h"
#include "lockstep/planner/plan.h"

// The run directory of a command: made, or taken up again.
namespace lockstep::cli {

// Whether the config names a run that a rerun of the same command resumes.
bool names_resumable_run(const config::Config& config);

// Returns the lock of the run directory that the config names, if there is such a run.
// May wait for a process of another machine, so a signal must still end this program.
// Fault::config if somebody works on that run.
std::optional<monitor::RunLock> lock_existing_run(const config::Config& config,
                                                  bool take_over, Context& context);

struct OpenedRun {
  monitor::RunDirectory directory;
  monitor::RunLock lock;
};

// Takes up the run that `lock` is of, with the knobs of now, or makes a new one.
// `watched`: this process looks after the run.
OpenedRun open_run(const planner::Plan& plan, std::optional<monitor::RunLock> lock,
                   Context& context, bool watched = true);

}  // namespace lockstep::cli
