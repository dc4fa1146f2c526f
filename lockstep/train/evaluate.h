#pragma once

#include <functional>
#include <optional>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/model.h"
#include "lockstep/monitor/heartbeat.h"
#include "lockstep/precision/policy.h"
#include "lockstep/train/step.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// What an evaluation needs of the run around it.
struct EvalContext {
  const config::Config& config;
  const precision::Policy& policy;
  const StopRequest& stop;
  comm::World& world;
  std::function<void(monitor::Phase)> beat;  // for each batch; may be empty
};

// The means over every sample of the data set, each counted exactly once over all
// ranks, with the model in evaluation mode (it is put back into training mode). Nothing
// if a rank was asked to stop before the last sample. Collective.
std::optional<Tally::Means> evaluate(models::Model& model, const data::Dataset& dataset,
                                     const EvalContext& context);

}  // namespace lockstep::train
