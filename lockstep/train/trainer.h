#pragma once

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/train/report.h"
#include "lockstep/train/shared.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// Trains what `config`, in which no knob is `auto`, describes, and returns what came of
// it; the run directory gets the metrics, the events and the final weights.
//
// Same config, same machine, same number of threads and ranks: the same losses to the
// last bit on a CPU.
//
// Collective: the ranks of `world` share each global batch, and leave together. The
// device is that of world.data().
Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world,
             const Extras& extras = {});

// The same for one of several ranks that are threads of this process.
Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world,
             Shared& shared);

}  // namespace lockstep::train
