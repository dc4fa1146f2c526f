#include <string>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/config/detail/checker.h"

namespace lockstep::config::detail {
namespace {

void check_parts(Checker& check, const TaskConfig& task) {
  if (task.name == TaskName::multi_task && task.parts.empty()) {
    check.refuse("task.parts",
                 "is empty, but task.name is multi_task; name the parts, for example "
                 "{answer: classification, findings: multi_label}");
  }
  const bool is_single =
      task.name != TaskName::multi_task && task.name != TaskName::automatic;
  if (is_single && !task.parts.empty()) {
    check.refuse("task.parts", str("names ", task.parts.size(),
                                   " parts, but task.name is ", name_of(task.name),
                                   "; set task.name=multi_task or leave them out"));
  }
}

struct PartWeights {
  std::string key;
  const std::map<std::string, double>& weights;
};

// Refuses weights of parts that do not exist.
void check_weights(Checker& check, const TaskConfig& task, const PartWeights& given) {
  std::vector<std::string> parts;
  for (const auto& [name, kind] : task.parts) parts.push_back(name);
  for (const auto& [name, weight] : given.weights) {
    if (task.parts.contains(name)) continue;
    check.refuse(given.key,
                 str("'", name, "' is not one of task.parts, which ",
                     parts.empty() ? "is empty" : "has ", text::join(parts, ", "),
                     text::did_you_mean(name, parts)));
  }
}

void check_coefficients(Checker& check, const TaskConfig& task) {
  check_weights(check, task, {.key = "task.loss", .weights = task.loss});
  check_weights(check, task, {.key = "task.loss_final", .weights = task.loss_final});
  if (!task.loss_final.empty() && task.loss_ramp_steps == 0) {
    check.refuse(
        "task.loss_final",
        "is given, but task.loss_ramp_steps is 0; set the number of steps of the ramp");
  }
  if (task.parts.empty()) return;
  for (const auto& [name, kind] : task.parts) {
    const auto weight = task.loss.find(name), last = task.loss_final.find(name);
    const bool counts = weight == task.loss.end() || weight->second > 0 ||
                        (last != task.loss_final.end() && last->second > 0);
    if (counts) return;
  }
  check.refuse("task.loss",
               "all weights are 0: nothing would be learned; give a part one above 0");
}

}  // namespace

void check_task(Checker& check, const TaskConfig& task) {
  check_parts(check, task);
  check_coefficients(check, task);
  if (task.criterion == Criterion::focal && task.label_smoothing > 0) {
    check.refuse("task.label_smoothing",
                 str(task.label_smoothing,
                     ", but task.criterion is focal, which knows one right class; set "
                     "task.label_smoothing=0 or task.criterion=cross_entropy"));
  }
}

}  // namespace lockstep::config::detail
