#pragma once

#include <vector>

#include <torch/torch.h>

#include "lockstep/config/config.h"
#include "lockstep/monitor/console.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/train/report.h"
#include "lockstep/train/shared.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// data_parallel: trains with the ranks as threads of this process, one for each device;
// one device may be there twice. The data is opened once; each rank has a replica of
// the model which stays. Returns rank 0's result. If a rank fails, all end, and what it
// threw is thrown.
Result train_replicas(const config::Config& config, const monitor::RunDirectory& run,
                      const std::vector<torch::Device>& devices,
                      monitor::Console& console, const StopRequest& stop,
                      const Extras& extras = {});

}  // namespace lockstep::train
