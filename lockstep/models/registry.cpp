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

// All but these compute with numbers; of tokens LibTorch would say at the first step
// that dtypes differ.
void refuse_tokens(const config::ModelConfig& config, const Shape& shape) {
  if (config.name == "gpt" || config.name == "torchscript") return;
  for (const auto& tensor : shape.tensors) {
    const bool is_number =
        tensor.dtype == torch::kUInt8 || torch::isFloatingType(tensor.dtype);
    if (tensor.name != "input" || is_number) continue;
    throw Error(
        Fault::config, "model.name: '", config.name,
        "' takes images or other numbers, but the input of the data is tokens (",
        c10::getDtypeNames(tensor.dtype).first,
        "); set model.name=gpt, or name other data");
  }
}

}  // namespace

std::shared_ptr<Model> build(const config::ModelConfig& config, const Shape& shape) {
  std::vector<std::string> names;
  for (const auto& entry : kEntries) {
    if (entry.name == config.name) {
      refuse_tokens(config, shape);
      return entry.make(config, shape);
    }
    names.emplace_back(entry.name);
  }
  throw Error(Fault::config, "model.name: there is no model '", config.name,
              "'; there are ", text::join(names, ", "),
              text::did_you_mean(config.name, names));
}

}  // namespace lockstep::models
