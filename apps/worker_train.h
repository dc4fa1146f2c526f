#pragma once

#include <optional>

#include "apps/worker_entry.h"

#include "lockstep/monitor/trace.h"
#include "lockstep/train/stop.h"

namespace lockstep {

// One rank of a run: meets the others, trains, shows the result (rank 0). Returns the
// exit status.
int run_training(const monitor::RunDirectory& run, ConfigLoader load,
                 const train::StopRequest& stop,
                 const std::optional<monitor::TraceRequest>& trace = std::nullopt);

}  // namespace lockstep
