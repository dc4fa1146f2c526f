#include "lockstep/task/primary.h"

#include <algorithm>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/local.h"

namespace lockstep::task {

std::vector<MetricValue> measured_values(const Task& task) {
  const auto alone = comm::make_local({torch::kCPU});
  return task.metrics().values(*alone.front());
}

Primary find_primary(const Task& task, const std::string& name, std::string_view knob) {
  std::vector<std::string> names{"loss"};
  if (task.losses().size() > 1) {
    for (const auto& loss : task.losses()) names.push_back("loss_" + loss.name);
  }
  if (std::find(names.begin(), names.end(), name) != names.end()) {
    return {name, Better::less};
  }
  for (const auto& value : measured_values(task)) {
    if (value.name == name) return {name, value.better};
    names.push_back(value.name);
  }
  throw Error(Fault::config, knob, ": '", name, "' is not evaluated; there are ",
              text::join(names, ", "), "; eval.metrics adds others",
              text::did_you_mean(name, names));
}

}  // namespace lockstep::task
