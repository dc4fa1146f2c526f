#pragma once

#include <memory>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/memory/offload.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/precision/policy.h"
#include "lockstep/task/task.h"
#include "lockstep/train/run_state.h"
#include "lockstep/train/shared.h"

namespace lockstep::train {

struct Built {
  precision::Policy policy;
  std::shared_ptr<models::Model> model;
  std::shared_ptr<const task::Task> task;
  // Draws and loads the values of a model without memory (parallel::StrategyParts);
  // empty: it has them.
  std::function<void(const parallel::EngineOptions::Assign&)> fill = {};
  // Calls its argument with the parameters and the values from which they were rounded
  // to 16 bits, once; empty: they were not.
  std::function<void(const parallel::EngineOptions::Assign&)> unrounded = {};
};

// Makes process-wide settings, the model and the task; one rank of a process at a time.
// Where parameters are sharded the recipe's model has no memory yet. Throws
// Fault::config for a knob that these can not follow.
Built build(const config::Config& config, comm::World& world, Shared& shared);

// Gives the optimizer's float copies of 16-bit parameters the values from which these
// were rounded: a first update that is smaller than half a step of 16 bits would else
// be lost on all of them at once. Collective.
void give_unrounded(const Built& built, parallel::Strategy& strategy);

// Returns the shape that a model is built for.
models::Shape shape_of(const data::SampleSpec& spec);

// Returns the task of a config, with its weights on the device.
std::shared_ptr<const task::Task> build_task(const config::Config& config,
                                             const data::Dataset& train,
                                             const precision::Policy& policy);

// Throws if the data of the nodes differ: each may have its own copy, and the number of
// steps follows from the samples. Collective.
void check_same_data(comm::World& world, const Shared& shared);

// Returns the digest of the weights under adapters, which are not saved; "" if all are.
// A run resumes only beside the same (hf::check_base()).
std::string digest_of_base(const config::Config& config);

// Returns what memory.offload asks for; null if it is off.
std::shared_ptr<memory::Offload> make_offload(const config::MemoryConfig& config,
                                              const parallel::Strategy& strategy,
                                              const torch::Device& device);

// Gives each rank its own random numbers for a user's model that draws from torch's
// generators; our models draw by sample. Ranks that are threads share the generators.
void seed_apart(const comm::World& world, std::uint64_t seed, const Shared& shared);

// Returns the samples of a micro-batch: what was named, or planned; all of a rank's
// share where the largest that fits is looked for.
std::int64_t largest_micro_batch(const config::Config& config, const comm::World& world,
                                 std::int64_t samples);

// Returns the schedule with its goal: `auto` follows the task's metric. Fault::config
// for a plateau that waits for the wrong direction.
config::ScheduleConfig with_goal(config::ScheduleConfig schedule,
                                 const task::Primary& primary);

// Returns whether CUDA graphs may hold steps: replicas share autograd's thread, so no
// graph holds what one of them does.
bool may_capture(const config::Config& config);

// The facts that the log states when a run starts.
struct StartFacts {
  const config::Config& config;
  const Shared& shared;
  const Built& built;
  const parallel::Strategy& strategy;
  std::int64_t last_step = 0;
  double seconds = 0;  // since the data was requested
};
void log_start(const StartFacts& start);

}  // namespace lockstep::train
