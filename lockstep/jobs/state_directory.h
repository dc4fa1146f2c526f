#pragma once

#include <filesystem>

#include "lockstep/hardware/machine.h"
#include "lockstep/jobs/caller.h"

namespace lockstep::jobs {

// Returns the directory of what outlives runs and belongs to a user:
// $XDG_STATE_HOME/lockstep, or ~/.local/state/lockstep; empty where neither variable is
// set.
std::filesystem::path state_directory(const Caller& caller);

// Adds what `lockstep hardware bench` has kept of the machine. A file that can not be
// used is a warning.
void add_measured(hardware::Machine& machine, const Caller& caller);

// Returns this machine as a plan for a run in that directory needs it, links and all,
// with what was measured of it.
hardware::Machine known_machine(const Caller& caller,
                                const std::filesystem::path& run_directory = ".");

}  // namespace lockstep::jobs
