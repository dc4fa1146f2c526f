#include "lockstep/data/named.h"

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep {

const torch::Tensor* Named::find(std::string_view name) const noexcept {
  for (const auto& one : tensors_) {
    if (one.name == name) return &one.tensor;
  }
  return nullptr;
}

const torch::Tensor& Named::at(std::string_view name) const {
  if (const auto* found = find(name)) return *found;
  std::vector<std::string> names;
  for (const auto& one : tensors_) names.push_back(one.name);
  throw Error(Fault::config, "there is no tensor '", name, "'; there are ",
              names.empty() ? "none" : text::join(names, ", "),
              text::did_you_mean(std::string(name), names));
}

void Named::set(std::string_view name, torch::Tensor tensor) {
  for (auto& one : tensors_) {
    if (one.name != name) continue;
    one.tensor = std::move(tensor);
    return;
  }
  tensors_.push_back({std::string(name), std::move(tensor)});
}

}  // namespace lockstep
