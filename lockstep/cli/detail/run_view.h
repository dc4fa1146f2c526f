#pragma once

#include <string>

#include "lockstep/cli/command.h"
#include "lockstep/jobs/run_view.h"

namespace lockstep::cli {

// Returns the default place of runs: run.dir, which the environment may set.
std::string default_run_dir(const Context& context);

// Turns "2026-11-15T03:22:41.125Z" into "2026-11-15 03:22:41".
std::string short_time(const std::string& iso);

}  // namespace lockstep::cli
