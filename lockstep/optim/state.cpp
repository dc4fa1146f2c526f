#include "lockstep/optim/state.h"

#include <algorithm>

#include "lockstep/base/error.h"

namespace lockstep::optim {
namespace {

const torch::Tensor& find(const NamedTensors& state, const std::string& name,
                          const char* whose) {
  const auto found = std::find_if(state.begin(), state.end(),
                                  [&](const auto& item) { return item.first == name; });
  if (found == state.end()) {
    throw Error(Fault::config, whose, ": the saved state has no '", name,
                "'; it is of another optimizer, precision.mode or version");
  }
  return found->second;
}

}  // namespace

void copy_state(const NamedTensors& own, const NamedTensors& from, const char* whose) {
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : own) {
    const auto& saved = find(from, name, whose);
    if (saved.sizes() == tensor.sizes()) continue;
    throw Error(Fault::config, whose, ": the saved '", name, "' has the shape ",
                saved.sizes(), ", not ", tensor.sizes(),
                "; it is of another model or another piece of it");
  }
  if (from.size() > own.size()) {
    throw Error(Fault::config, whose, ": the saved state has ", from.size(),
                " tensors, not ", own.size(),
                "; it is of another optimizer, precision.mode or version");
  }
  for (const auto& [name, tensor] : own) tensor.copy_(find(from, name, whose));
}

}  // namespace lockstep::optim
