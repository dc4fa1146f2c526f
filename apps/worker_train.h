#pragma once

#include <optional>

#include "apps/worker_entry.h"

#include "lockstep/run/trace.h"
#include "lockstep/train/stop.h"

namespace lockstep {

struct TrainingRequest {
  run::RunDirectory run;
  std::optional<run::TraceRequest> trace;
};

// Runs one rank: meets the others, trains, shows the result (rank 0). Returns the exit
// status.
int run_training(const TrainingRequest& request, ConfigLoader load,
                 const train::StopRequest& stop);

}  // namespace lockstep
