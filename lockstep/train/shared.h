#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "lockstep/base/clock.h"
#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/monitor/trace.h"
#include "lockstep/task/task.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/out_of_memory.h"
#include "lockstep/train/window.h"

namespace lockstep::train {

// What a program adds to the run that a config describes.
struct Extras {
  CallbackList callbacks = {};
  // Both or none: instead of those that the section `data` describes.
  std::shared_ptr<const data::Dataset> train_data = nullptr, eval_data = nullptr;
  // Instead of the model that the section `model` names. Called once by each rank.
  std::function<std::shared_ptr<models::Model>(const models::Shape&)> build_model = {};
  // Instead of the one that the section `task` describes: losses and metrics. A knob of
  // that section, eval.metrics or weights of classes beside it are refused.
  std::shared_ptr<const task::Task> task = nullptr;
  // When the batch system ends the job: a checkpoint is saved before.
  std::optional<WallTime> job_end = std::nullopt;
  // How often the launcher has started this run again.
  int restarts = 0;
  // Every rank writes what its steps compute.
  std::optional<monitor::TraceRequest> trace = std::nullopt;
};

// What the ranks of one process have in common.
struct Shared {
  std::optional<HostMemoryLimit> limit = std::nullopt;  // memory.host_limit
  int ranks = 1;                                        // of this process
  std::shared_ptr<const data::Dataset> train_data, eval_data;
  // Held while a rank sets up what belongs to the process, and builds its model:
  // initial values come from torch's default generator, which is the process's.
  std::mutex setting_up;
  Extras extras;
};

// Of a rank of this process. With memory.host_limit only tensors are counted, each
// rank having its part of them.
DeviceMemory memory_of(const torch::Device& device, const Shared& shared);

// Opens both splits of the data. Throws Fault::io if they are not of one kind.
std::unique_ptr<Shared> open_shared(const config::Config& config,
                                    const Extras& extras = {}, int ranks = 1);

}  // namespace lockstep::train
