#pragma once

#include <filesystem>

namespace lockstep::run {

// Returns the directory of what outlives runs and belongs to a user, as this process's
// environment names it: $XDG_STATE_HOME/lockstep, or ~/.local/state/lockstep; empty
// where neither variable is set.
std::filesystem::path state_directory();

}  // namespace lockstep::run
