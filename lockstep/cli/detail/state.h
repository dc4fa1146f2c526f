#pragma once

#include <filesystem>

#include "lockstep/cli/command.h"
#include "lockstep/hardware/machine.h"

namespace lockstep::cli {

// What outlives runs and belongs to a person: $XDG_STATE_HOME/lockstep, or
// ~/.local/state/lockstep; empty where neither variable is set.
std::filesystem::path state_directory(const Context& context);

// Adds what `lockstep hardware bench` has kept of the machine. A file that can not be
// used is a warning on context.err.
void add_measured(hardware::Machine& machine, Context& context);

// This machine as a plan for a run in that directory needs it, links and all, with what
// was measured of it.
hardware::Machine known_machine(Context& context,
                                const std::filesystem::path& run_directory = ".");

}  // namespace lockstep::cli
