#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/task/task.h"

namespace lockstep::task {

struct TaskPart {
  std::string name;  // of its loss, and with _ before the names of its metrics
  std::shared_ptr<Task> task;
  double coefficient = 1;                        // of its loss in what is trained
  std::optional<double> final_coefficient = {};  // after ramp_steps; none: the same
};

// Several tasks that one model learns at once.
struct MultiTaskOptions {
  std::vector<TaskPart> parts;
  std::int64_t ramp_steps = 0;  // in which coefficients go to their final ones
  std::string primary = "";     // "vqa_accuracy" or "loss_vqa"; "": the first part's
};

// A part that has several losses gives each its name: "part_loss". Throws Fault::config
// if there is no part, or two have the same name.
std::shared_ptr<Task> make_multi_task(MultiTaskOptions options);

}  // namespace lockstep::task
