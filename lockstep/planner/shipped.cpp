#include "lockstep/planner/shipped.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/config/gpt_sizes.h"
#include "lockstep/hardware/json.h"
#include "lockstep/planner/machine_grammar.h"

namespace lockstep::planner {
namespace {

struct Shipped {
  std::string_view name;
  std::string_view text;
};

#include "shipped_data.h"  // kModelFiles, kMachineFiles: made by CMake

std::vector<std::string> names_in(std::span<const Shipped> files) {
  std::vector<std::string> names;
  for (const auto& file : files) names.emplace_back(file.name);
  return names;
}

std::string text_of(std::span<const Shipped> files, const std::string& name,
                    std::string_view what) {
  const auto more = what == "machine" ? ", any number of a GPU (8xa100-40, 1xrtx4090), "
                                        "several hosts (2x(4xh100)), cpu-N"
                                      : "";
  for (const auto& file : files) {
    if (file.name == name) return std::string(file.text);
  }
  const auto names = names_in(files);
  throw Error(Fault::config, "unknown ", what, " '", name, "'",
              text::did_you_mean(name, names), "; known are ", text::join(names, ", "),
              more, ", or a file (a name with a / or .json)");
}

}  // namespace

std::vector<std::string> shipped_models() {
  return names_in(kModelFiles);
}

std::vector<std::string> shipped_machines() {
  return names_in(kMachineFiles);
}

run::ModelDescription shipped_model(const std::string& word) {
  const auto* size = config::find_gpt_size(word);
  const auto name = size == nullptr ? word : std::string(size->name);
  return run::model_from_json(text_of(kModelFiles, name, "model"), name + ".json");
}

hardware::Machine shipped_machine(const std::string& name) {
  const auto names = shipped_machines();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    if (auto machine = machine_by_grammar(name)) return *machine;
  }
  auto machine =
      hardware::from_json(text_of(kMachineFiles, name, "machine"), name + ".json");
  machine.hostname = name;
  return machine;
}

}  // namespace lockstep::planner
