#include <array>
#include <string_view>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/models/model.h"

namespace lockstep::models {

// Each is in the source of its model.
#define LOCKSTEP_DECLARE(name, input)                                   \
  std::shared_ptr<Model> make_##name(const config::ModelConfig& config, \
                                     const Shape& shape);
LOCKSTEP_MODELS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

namespace {

enum class Input { numbers, tokens, anything };

struct RegisteredModel {
  std::string_view name;
  Input input;
  std::shared_ptr<Model> (*make)(const config::ModelConfig&, const Shape&);
};

#define LOCKSTEP_ROW(name, input) RegisteredModel{#name, Input::input, make_##name},
constexpr std::array kEntries{LOCKSTEP_MODELS(LOCKSTEP_ROW)};
#undef LOCKSTEP_ROW

// Tokens for a model that computes with numbers: LibTorch would report different dtypes
// at the first step.
void refuse_tokens(std::string_view model, const Shape& shape) {
  for (const auto& tensor : shape.tensors) {
    const bool is_number =
        tensor.dtype == torch::kUInt8 || torch::isFloatingType(tensor.dtype);
    if (tensor.name != "input" || is_number) continue;
    throw Error(
        Fault::config, "model.name: '", model,
        "' takes images (uint8) or floating-point numbers, but the input of the data "
        "is ",
        c10::getDtypeNames(tensor.dtype).first,
        ", as tokens are; set model.name=gpt for tokens, or save numbers as float32");
  }
}

}  // namespace

std::shared_ptr<Model> build(const config::ModelConfig& config, const Shape& shape) {
  std::vector<std::string> names;
  for (const auto& entry : kEntries) {
    if (entry.name == config.name) {
      if (entry.input == Input::numbers) refuse_tokens(entry.name, shape);
      return entry.make(config, shape);
    }
    names.emplace_back(entry.name);
  }
  throw Error(Fault::config, "model.name: there is no model '", config.name,
              "'; there are ", text::join(names, ", "),
              text::did_you_mean(config.name, names));
}

}  // namespace lockstep::models
