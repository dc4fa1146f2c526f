#include <array>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/model.h"

namespace lockstep::models {
namespace {

struct Entry {
  std::string_view name;
  std::shared_ptr<Model> (*make)(const config::ModelConfig&, const Shape&);
};

constexpr std::array kEntries = {
    Entry{"cnn", make_cnn},           Entry{"gpt", make_gpt},
    Entry{"mlp", make_mlp},           Entry{"resnet9", make_resnet9},
    Entry{"resnet18", make_resnet18}, Entry{"resnet34", make_resnet34},
    Entry{"resnet50", make_resnet50}, Entry{"torchscript", make_torchscript},
};

}  // namespace

std::shared_ptr<Model> build(const config::ModelConfig& config, const Shape& shape) {
  std::vector<std::string> names;
  for (const auto& entry : kEntries) {
    if (entry.name == config.name) return entry.make(config, shape);
    names.emplace_back(entry.name);
  }
  throw Error(Fault::config, "model.name: there is no model '", config.name,
              "'; there are ", text::join(names, ", "),
              text::did_you_mean(config.name, names));
}

}  // namespace lockstep::models
