#pragma once

#include <memory>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/precision/policy.h"
#include "lockstep/task/task.h"
#include "lockstep/train/offload.h"
#include "lockstep/train/shared.h"

namespace lockstep::train {

// How many steps a run over so many samples has.
optim::RunLength length_of(const config::Config& config, std::int64_t num_samples);
// And after how many it ends: with train.fast_dev_run before its schedule does.
std::int64_t last_step_of(const config::Config& config, const optim::RunLength& run);

struct Built {
  precision::Policy policy;
  std::shared_ptr<models::Model> model;
  std::shared_ptr<const task::Task> task;
};

// Process-wide settings, the model and the task, by one rank of a process at a time.
// Throws Fault::config for a knob that these can not follow.
Built build(const config::Config& config, const torch::Device& device, Shared& shared);

// What a model is built for.
models::Shape shape_of(const data::SampleSpec& spec);

// The task of a config, with what it weighs on the device.
std::shared_ptr<const task::Task> task_of(const config::Config& config,
                                          const data::Dataset& train,
                                          const precision::Policy& policy);

// Nodes may have copies of the data of their own, and the number of steps follows from
// the samples: throws if they differ. Collective.
void check_same_data(comm::World& world, const Shared& shared);

// memory.offload; none if it is off.
std::shared_ptr<Offload> offload_of(const config::Config& config,
                                    const parallel::Strategy& strategy,
                                    const torch::Device& device);

// What a model of one's own draws from torch's generators from now on is each rank's
// own; ours draw by sample. Ranks that are threads share the generators.
void seed_apart(const comm::World& world, std::uint64_t seed, const Shared& shared);

}  // namespace lockstep::train
