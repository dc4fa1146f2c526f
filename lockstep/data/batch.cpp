#include "lockstep/data/batch.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::data {

namespace {

template <typename Tensor, typename SomeBatch>
TensorPointers<Tensor> tensors_of(SomeBatch& batch) {
  TensorPointers<Tensor> all;
  if (batch.inputs.defined()) all.push_back(&batch.inputs);
  if (batch.targets.defined()) all.push_back(&batch.targets);
  for (auto& field : batch.fields) all.push_back(&field.tensor);
  return all;
}

}  // namespace

TensorPointers<torch::Tensor> Batch::tensors() {
  return tensors_of<torch::Tensor>(*this);
}

TensorPointers<const torch::Tensor> Batch::tensors() const {
  return tensors_of<const torch::Tensor>(*this);
}

const torch::Tensor& Batch::at(std::string_view name) const {
  if (name == "input" && inputs.defined()) return inputs;
  if (name == "target" && targets.defined()) return targets;
  for (const auto& field : fields) {
    if (field.name == name) return field.tensor;
  }
  std::vector<std::string> names;
  if (inputs.defined()) names.emplace_back("input");
  if (targets.defined()) names.emplace_back("target");
  for (const auto& field : fields) names.push_back(field.name);
  throw Error(Fault::config, "data: a sample has no field '", name, "'; it has ",
              text::join(names, ", "));
}

}  // namespace lockstep::data
