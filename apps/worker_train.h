#pragma once

#include <optional>

#include "apps/worker_entry.h"

#include "lockstep/run/trace.h"
#include "lockstep/train/stop.h"

namespace lockstep {

// Runs one rank: meets the others, trains, shows the result (rank 0). Returns the exit
// status.
int run_training(const run::RunDirectory& run, ConfigLoader load,
                 const train::StopRequest& stop,
                 const std::optional<run::TraceRequest>& trace = std::nullopt);

}  // namespace lockstep
