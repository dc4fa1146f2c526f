#pragma once

#include "lockstep/comm/join.h"
#include "lockstep/data/dataset.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/train/step.h"

namespace lockstep::train {

// A step over made-up samples, to see whether there is memory for it.
struct StepTrial {
  parallel::Strategy& strategy;
  Step& step;
  std::shared_ptr<const task::Task> task;
  comm::World& world;
  const data::SampleSpec& spec;
};

// Makes the step in micro-batches of `size` samples, which `step` has from then on. The
// weights stay. Returns false if this rank had no memory for it. Collective.
bool try_step(const StepTrial& trial, std::int64_t size);

}  // namespace lockstep::train
