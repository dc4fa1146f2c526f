#pragma once

#include <memory>
#include <mutex>
#include <optional>

#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/monitor/trace.h"
#include "lockstep/train/out_of_memory.h"

namespace lockstep::train {

// What the ranks of one process have in common.
struct Shared {
  std::optional<HostMemoryLimit> limit = std::nullopt;  // memory.host_limit
  int ranks = 1;                                        // of this process
  std::unique_ptr<const data::Dataset> train_data, eval_data;
  // Held while a rank sets up what belongs to the process, and builds its model:
  // initial values come from torch's default generator, which is the process's.
  std::mutex setting_up;
  // Every rank writes what its steps compute.
  std::optional<monitor::TraceRequest> trace = std::nullopt;
};

// Opens both splits of the data. Throws Fault::io if they are not of one kind.
std::unique_ptr<Shared> open_shared(const config::Config& config, int ranks = 1);

}  // namespace lockstep::train
