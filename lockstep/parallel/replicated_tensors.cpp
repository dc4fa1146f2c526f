#include "lockstep/parallel/detail/replicated_tensors.h"

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/parallel/full_tensors.h"

namespace lockstep::parallel::detail {
namespace {

// Master weights are the truth of parameters in 16 bits.
constexpr const char* kMaster = "master";

torch::Tensor find(const optim::NamedTensors& state, const std::string& name) {
  std::vector<std::string> names;
  for (const auto& [own, tensor] : state) {
    if (own == name) return tensor;
    names.push_back(own);
  }
  throw Error(Fault::config, "parallel: the optimizer has no state '", name,
              "'; it has ", text::join(names, ", "));
}

bool has(const optim::NamedTensors& state, const std::string& name) {
  return std::any_of(state.begin(), state.end(),
                     [&](const auto& item) { return item.first == name; });
}

}  // namespace

torch::Tensor ReplicatedTensors::parameter(std::string_view name) {
  return full_parameter(engine_, name);
}

void ReplicatedTensors::set_parameter(std::string_view name,
                                      const torch::Tensor& value) {
  set_full_parameter(engine_, name, value);
  if (has(optimizers_.piece_state(0), kMaster)) {
    set_optimizer_state(name, kMaster, value);
  }
}

torch::Tensor ReplicatedTensors::gradient(std::string_view name) {
  return full_gradient(engine_, name);
}

void ReplicatedTensors::set_gradient(std::string_view name,
                                     const torch::Tensor& value) {
  set_full_gradient(engine_, name, value);
}

std::map<std::string, torch::Tensor> ReplicatedTensors::optimizer_state(
    std::string_view name) {
  const auto parameter = find_parameter(engine_, name);
  std::map<std::string, torch::Tensor> all;
  for (const auto& [state, tensor] : optimizers_.piece_state(0)) {
    const auto piece = [&, &own = state](std::size_t i) {
      return find(optimizers_.piece_state(i), own);
    };
    all[state] =
        tensor.dim() == 0 ? tensor.clone() : full_tensor(engine_, parameter, piece);
  }
  return all;
}

void ReplicatedTensors::set_optimizer_state(std::string_view name,
                                            const std::string& state,
                                            const torch::Tensor& value) {
  const auto parameter = find_parameter(engine_, name);
  const auto one = find(optimizers_.piece_state(0), state);
  if (one.dim() == 0) {
    throw Error(Fault::config, "parallel: '", state,
                "' is one number of all parameters; a checkpoint sets it");
  }
  set_full_tensor(engine_, {parameter, value}, [&](std::size_t i) {
    return find(optimizers_.piece_state(i), state);
  });
}

}  // namespace lockstep::parallel::detail
