#pragma once

#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/model.h"
#include "lockstep/planner/model.h"
#include "lockstep/task/task.h"

namespace lockstep::train {

// What the planner wants to know of a model: parameters and operations of each block,
// and the bytes that passes over small batches of made-up samples really took, in fp32
// and in bf16, on the CPU. Of a model without memory (models::DeferredMemory) they are
// those that the passes would have taken in fp32, and half of them in bf16.
//
// REQUIRES: no HostMemoryLimit lives.
planner::Model describe(models::Model& model, const data::SampleSpec& spec,
                        const task::Task& task);

// The same for the model and the data that a recipe names; knobs may still be auto. One
// whose passes would take more memory than can be spared here is not given any.
// Throws as opening the data and building the model do.
planner::Model describe(const config::Config& config);

}  // namespace lockstep::train
