#pragma once

#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/models/model.h"
#include "lockstep/run/model_description.h"
#include "lockstep/task/task.h"

namespace lockstep::describe {

// Describes a model for the planner: parameters and operations of each block, and the
// bytes that passes over small batches of made-up samples really took, in fp32 and in
// bf16, on the CPU. For a model without memory (models::DeferredMemory) they are those
// that the passes would have taken in fp32, and half of them in bf16.
//
// REQUIRES: no HostMemoryLimit lives.
run::ModelDescription describe_model(models::Model& model, const data::SampleSpec& spec,
                                     const task::Task& task);

// Does the same for the model and the data of a recipe; knobs may still be auto. A
// model whose passes would take more memory than can be spared is made without any.
// Throws as opening the data and building the model do.
run::ModelDescription describe_model(const config::Config& config);

}  // namespace lockstep::describe
