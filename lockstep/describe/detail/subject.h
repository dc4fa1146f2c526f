#pragma once

#include "lockstep/data/dataset.h"
#include "lockstep/data/stage.h"
#include "lockstep/models/model.h"
#include "lockstep/run/model_description.h"
#include "lockstep/task/task.h"

namespace lockstep::describe::detail {

// The subject of a description: the model, its samples, and its losses.
struct Subject {
  models::Model& model;
  const data::SampleSpec& spec;
  const task::Task& task;
};

data::BatchStage stage_of(const Subject& subject, std::int64_t batch,
                          const torch::Device& device);

// Times passes on this machine's processor, with one thread and with one for each core,
// for about a second, and tells what this process has besides tensors; it has computed
// passes of at most `largest` samples before. Leaves gradients behind.
void add_trials(run::ModelDescription& described, const Subject& subject,
                std::int64_t largest);

}  // namespace lockstep::describe::detail
