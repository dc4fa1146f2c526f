#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>

#include "lockstep/base/clock.h"
#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/memory/out_of_memory.h"
#include "lockstep/run/trace.h"
#include "lockstep/task/task.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/window.h"

namespace lockstep::train {

// The parts that a program adds to the run that a config describes.
struct RunHooks {
  CallbackList callbacks = {};
  // These replace the data sets that the section `data` describes: both or none.
  std::shared_ptr<const data::Dataset> train_data = nullptr, eval_data = nullptr;
  // Replaces the model that the section `model` names. Called once by each rank.
  std::function<std::shared_ptr<models::Model>(const models::Shape&)> build_model = {};
  // Replaces the losses and metrics that the section `task` describes. A knob of that
  // section, eval.metrics or weights of classes beside it are refused.
  std::shared_ptr<const task::Task> task = nullptr;
  // The time at which the batch system ends the job: a checkpoint is saved before.
  std::optional<WallTime> job_end = std::nullopt;
  // The number of times that the launcher has restarted this run.
  int restarts = 0;
  // If set, every rank writes what its steps compute.
  std::optional<run::TraceRequest> trace = std::nullopt;
};

// The state that the ranks of one process share.
struct Shared {
  std::optional<memory::HostMemoryLimit> limit = std::nullopt;  // memory.host_limit
  int ranks = 1;                                                // of this process
  std::shared_ptr<const data::Dataset> train_data, eval_data;
  // Held while a rank sets up what belongs to the process, and builds its model:
  // initial values come from torch's default generator, which is the process's.
  std::mutex setting_up;
  RunHooks hooks;
};

// Returns the memory of a rank of this process. With memory.host_limit only tensors are
// counted, each rank having its part of them.
memory::DeviceMemory memory_of(const torch::Device& device, const Shared& shared);

// Opens both splits of the data. Throws Fault::io if they are not of one kind.
std::unique_ptr<Shared> open_shared(const config::Config& config,
                                    const RunHooks& hooks = {}, int ranks = 1);

}  // namespace lockstep::train
