#include "lockstep/task/fields.h"

#include "lockstep/base/error.h"

namespace lockstep::task {
namespace {

[[noreturn]] void refuse(const std::string& name, at::IntArrayRef own,
                         at::IntArrayRef shape) {
  constexpr auto kRemedy = "; give it one entry for each sample or for each target";
  // The batch says nothing, which may be one of no samples.
  if (!own.empty() && !shape.empty() && own[0] == shape[0]) {
    throw Error(Fault::config, "field '", name, "' of a sample has shape ",
                own.slice(1), ", but its targets have ", shape.slice(1), kRemedy);
  }
  throw Error(Fault::config, "field '", name, "' has shape ", own,
              ", but its targets have ", shape, kRemedy);
}

torch::Tensor expanded(const torch::Tensor& tensor, at::IntArrayRef shape,
                       const std::string& name) {
  const auto own = tensor.sizes();
  if (own == shape) return tensor;
  if (own.size() > shape.size() || own != shape.slice(0, own.size())) {
    refuse(name, own, shape);
  }
  c10::SmallVector<std::int64_t, 4> ones(own.begin(), own.end());
  ones.resize(shape.size(), 1);
  return tensor.view(ones).expand(shape);
}

}  // namespace

std::vector<std::string> fields_of_batch(const Fields& fields) {
  std::vector<std::string> names{fields.target};
  for (const auto& name : {fields.mask, fields.weight}) {
    if (!name.empty()) names.push_back(name);
  }
  return names;
}

Counted counted_in(const Named& batch, const Fields& fields, at::IntArrayRef shape) {
  Counted counted;
  if (!fields.mask.empty()) {
    const auto mask = batch.at(fields.mask).to(torch::kBool);
    counted.mask = expanded(mask, shape, fields.mask);
  }
  if (!fields.weight.empty()) {
    counted.weights = expanded(batch.at(fields.weight), shape, fields.weight);
  }
  return counted;
}

}  // namespace lockstep::task
