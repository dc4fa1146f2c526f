#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/model.h"
#include "lockstep/monitor/heartbeat.h"
#include "lockstep/precision/policy.h"
#include "lockstep/task/task.h"
#include "lockstep/train/seen_shapes.h"
#include "lockstep/train/tally.h"

namespace lockstep::train {

// What an evaluation needs of the run around it.
struct EvalContext {
  const config::Config& config;
  const precision::Policy& policy;
  comm::World& world;
  const task::Task& task;
  std::int64_t step = 0;  // so many are done: coefficients of losses may follow them
  // What this rank tells the others before each batch: comm::kStop ends the evaluation
  // on all of them. May be empty.
  std::function<comm::Ballot()> ballot = {};
  std::function<void(monitor::Phase)> beat = {};  // for each batch; may be empty
  SeenShapes* shapes = nullptr;                   // of earlier evaluations; may be null
  std::int64_t limit_batches = 0;                 // 0: as the config says
};

// The means over every sample of the data set, each counted exactly once over all
// ranks, with the model in evaluation mode (it is put back into training mode): the
// losses, then what the task measures. Their count is that of the samples, whatever
// they have of targets: it is reported as such. What has nothing to measure is NaN, and
// a line says so. Nothing if a rank is to leave before the last sample. A batch for
// which a rank has no memory is taken in smaller pieces. Collective.
std::optional<Means> evaluate(models::Model& model, const data::Dataset& dataset,
                              const EvalContext& context);

}  // namespace lockstep::train
