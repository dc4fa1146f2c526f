#include "lockstep/inference/script_notes.h"

#include <nlohmann/json.hpp>

#include <c10/core/ScalarType.h>

namespace lockstep::inference {
namespace {

using Json = nlohmann::ordered_json;

std::string dtype_of(torch::Dtype dtype) {
  return c10::getDtypeNames(dtype).first;
}

Json described(const std::string& name, const torch::Tensor& tensor) {
  auto shape = Json::array({"batch"});
  for (const auto size : tensor.sizes().slice(1)) shape.push_back(size);
  return {{"name", name},
          {"shape", std::move(shape)},
          {"dtype", dtype_of(tensor.scalar_type())}};
}

void add_scaling(Json& input, const data::FieldSpec& field) {
  input["stored_as"] = dtype_of(field.dtype);
  if (field.channels.empty()) {
    input["scale"] = field.scaling.scale;
    input["shift"] = field.scaling.shift;
    return;
  }
  input["scale"] = Json::array();
  input["shift"] = Json::array();
  for (const auto& [scale, shift] : field.channels) {
    input["scale"].push_back(scale);
    input["shift"].push_back(shift);
  }
  input["axis"] = field.axis + 1;  // the batch is the first
}

}  // namespace

std::string script_notes(const ScriptFacts& facts) {
  const auto& [task, spec, inputs, outputs] = facts;
  Json notes{
      {"task", task.name()}, {"inputs", Json::array()}, {"outputs", Json::array()}};
  const auto fields = spec.tensors();
  for (const auto& [name, tensor] : inputs) {
    auto input = described(name, tensor);
    for (const auto& field : fields) {
      if (field.name == name && field.is_scaled()) add_scaling(input, field);
    }
    notes["inputs"].push_back(std::move(input));
  }
  for (const auto& [name, tensor] : outputs) {
    notes["outputs"].push_back(described(name, tensor));
  }
  if (!spec.class_names.empty()) notes["class_names"] = spec.class_names;
  // Names of classes are those of files, which need not be UTF-8.
  return notes.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace lockstep::inference
