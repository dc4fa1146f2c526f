#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/policy.h"
#include "lockstep/run/heartbeat.h"
#include "lockstep/task/tally.h"
#include "lockstep/task/task.h"
#include "lockstep/train/seen_shapes.h"

namespace lockstep::train {

// The parts of a run that an evaluation needs.
struct EvalContext {
  data::LoaderOptions loader;  // evaluate() says how large its batches are
  std::int64_t batch = 1;      // samples of a rank at a time (batch.eval)
  bool retries = false;        // with smaller pieces when there is no memory
  const precision::Policy& policy;
  comm::World& world;
  const task::Task& task;
  std::int64_t step = 0;  // so many are done: coefficients of losses may follow them
  // Returns what this rank tells the others before each batch: comm::kStop ends the
  // evaluation on all of them. May be empty.
  std::function<comm::Ballot()> ballot = {};
  std::function<void(run::Phase)> beat = {};  // for each batch; may be empty
  SeenShapes* shapes = nullptr;               // of earlier evaluations; may be null
  parallel::Strategy* strategy = nullptr;     // runs forward passes; may be null
  std::int64_t limit_batches = 0;             // 0: as the config says
};

// Returns the means over every sample of the data set, each counted exactly once over
// all ranks, with the model in evaluation mode (it goes back to training mode): the
// losses, then the task's metrics. Their count is that of the samples, not of their
// targets. A metric that has nothing to measure is NaN, and logged. Returns nothing if
// a rank is to leave before the last sample. A batch for which a rank has no memory is
// taken in smaller pieces. Collective.
std::optional<task::Means> evaluate(models::Model& model, const data::Dataset& dataset,
                                    const EvalContext& context);

}  // namespace lockstep::train
