#pragma once

#include <optional>

#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/caller.h"
#include "lockstep/planner/plan.h"
#include "lockstep/run/run_lock.h"

// The run directory of a command: made, or taken up again.
namespace lockstep::jobs {

// Returns whether the config names a run that a rerun of the same command resumes.
bool names_resumable_run(const config::Config& config);

// Returns the lock of the run directory that the config names, if there is such a run.
// May wait for a process of another machine, so a signal must still end this program.
// Throws Fault::config if a process works on that run.
std::optional<run::RunLock> lock_existing_run(const config::Config& config,
                                              bool take_over, const Caller& caller);

struct OpenedRun {
  run::RunDirectory directory;
  run::RunLock lock;
};

struct OpenOptions {
  std::optional<run::RunLock> lock;  // lock_existing_run()
  bool watched = true;               // this process looks after the run
};

// Resumes the run that the lock is of, with the current knobs, or makes a new one.
OpenedRun open_run(const planner::Plan& plan, OpenOptions options,
                   const Caller& caller);

// Keeps what the run was made on, for `lockstep report`.
void keep_machine(const run::RunDirectory& run, const hardware::Machine& machine);

// Returns whether a run in that state has come to its end. One that train.max_time has
// ended is done, but not over.
bool is_over(const run::RunDirectory& run, run::RunStatus state);

}  // namespace lockstep::jobs
