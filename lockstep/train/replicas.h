#pragma once

#include <vector>

#include <torch/torch.h>

#include "lockstep/config/resolved.h"
#include "lockstep/monitor/console.h"
#include "lockstep/run/run_directory.h"
#include "lockstep/train/report.h"
#include "lockstep/train/shared.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// Ranks as threads of this process, one for each device; a device may appear twice.
struct Replicas {
  const run::RunDirectory& run;
  std::vector<torch::Device> devices;
  monitor::Console& console;
  const StopRequest& stop;
};

// data_parallel: trains with the ranks as threads of this process. The data is opened
// once; each rank has a replica of the model which stays. Returns rank 0's result. If a
// rank fails, all end, and its exception is rethrown.
Result train_replicas(const config::Resolved& config, const Replicas& replicas,
                      const RunHooks& hooks = {});

}  // namespace lockstep::train
