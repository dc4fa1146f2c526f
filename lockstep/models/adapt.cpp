#include "lockstep/models/adapt.h"

namespace lockstep::models {

AdaptedModule::AdaptedModule(torch::nn::Module& module) {
  for (const auto& item : module.named_parameters(/*recurse=*/false)) {
    register_parameter(item.key(), item.value(), item.value().requires_grad());
  }
  for (const auto& item : module.named_buffers(/*recurse=*/false)) {
    register_buffer(item.key(), item.value());
  }
  for (const auto& item : module.named_children()) {
    register_module(item.key(), item.value());
  }
}

}  // namespace lockstep::models
