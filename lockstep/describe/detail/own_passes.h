#pragma once

#include "lockstep/config/config.h"
#include "lockstep/models/model.h"
#include "lockstep/run/model_description.h"

namespace lockstep::describe::detail {

// Describes the passes that a model writes out itself: what is in their way, and what
// they would keep. Nothing is computed; the model may have no memory.
run::OwnPasses describe_own_passes(const config::Config& config,
                                   const models::Model& model,
                                   const models::Shape& shape);

}  // namespace lockstep::describe::detail
