#include "lockstep/parallel/backward_order.h"

#include <unordered_map>

#include "lockstep/parallel/detail/hooks.h"

namespace lockstep::parallel {

std::vector<std::string> backward_order(const torch::nn::Module& module,
                                        const std::function<void()>& pass) {
  const auto parameters = trainable_parameters(module);
  std::vector<torch::Tensor> tensors;
  for (const auto& parameter : parameters) tensors.push_back(parameter.tensor);
  std::vector<std::string> names;
  const detail::GradientHooks hooks(
      tensors, [](std::size_t) {},
      [&](std::size_t i) {
        names.push_back(parameters[i].name);
        tensors[i].mutable_grad().reset();
      });
  pass();
  std::vector<std::string> all;
  for (const auto i : order_by_name(parameters, names)) {
    all.push_back(parameters[i].name);
  }
  return all;
}

std::vector<std::size_t> order_by_name(const std::vector<Parameter>& parameters,
                                       const std::vector<std::string>& names) {
  std::unordered_map<std::string, std::size_t> left;
  for (std::size_t i = 0; i < parameters.size(); ++i) left[parameters[i].name] = i;
  std::vector<std::size_t> order;
  for (const auto& name : names) {
    const auto found = left.find(name);
    if (found == left.end()) continue;
    order.push_back(found->second);
    left.erase(found);
  }
  for (const auto i : reversed_order(parameters.size())) {
    if (left.count(parameters[i].name) > 0) order.push_back(i);
  }
  return order;
}

}  // namespace lockstep::parallel
