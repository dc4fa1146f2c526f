#pragma once

#include <memory>

#include <torch/torch.h>

#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/task/task.h"

namespace lockstep::task {

// Makes the task of section `task` for samples like these.
//
// Fields of the data set have their meaning by name: beside the target "x" (or a part
// "x" of several tasks), "x_mask" says which of its targets count, "x_weight" how much,
// and for tokens "x_bytes" how long each is in text. `class_weights` is undefined if
// all classes are alike. Throws Fault::config, with the knob and the remedy, for knobs
// that do not fit.
std::shared_ptr<Task> make_task(const config::Config& config,
                                const data::SampleSpec& spec,
                                const torch::Tensor& class_weights = {});

}  // namespace lockstep::task
