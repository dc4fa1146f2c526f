#pragma once

#include <optional>

#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/model.h"
#include "lockstep/precision/policy.h"
#include "lockstep/train/step.h"
#include "lockstep/train/stop.h"

namespace lockstep::train {

// The means over every sample of the data set, each counted exactly once, with the
// model in evaluation mode (it is put back into training mode). Nothing if `stop` asked
// for the end before the last sample.
std::optional<Tally::Means> evaluate(models::Model& model, const data::Dataset& dataset,
                                     const config::Config& config,
                                     const precision::Policy& policy,
                                     const StopRequest& stop);

}  // namespace lockstep::train
