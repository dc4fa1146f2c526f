#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "lockstep/task/task.h"

namespace lockstep::task {

// Returns the values that an evaluation of the task has beside its losses: their names
// and which is better; the numbers are those of no target at all.
std::vector<MetricValue> measured_values(const Task& task);

// Returns which is better of the value `name` of an evaluation: "loss", with several
// losses also "loss_<name>", or a metric. Throws Fault::config, with the knob that
// asked for it and the known names, if it has none of this name.
Primary find_primary(const Task& task, const std::string& name, std::string_view knob);

}  // namespace lockstep::task
