#pragma once

#include <memory>
#include <type_traits>
#include <utility>

#include "lockstep/models/model.h"

namespace lockstep::models {

// Wraps a plain module as a model: its layers, parameters and buffers under the names
// that they have there.
class AdaptedModule : public Model {
 public:
  explicit AdaptedModule(torch::nn::Module& module);
};

template <typename Plain>
class Adapted : public AdaptedModule {
 public:
  explicit Adapted(std::shared_ptr<Plain> module)
      : AdaptedModule(*module), module_(std::move(module)) {}

  torch::Tensor forward(const torch::Tensor& input) override {
    return module_->forward(input);
  }
  void train(bool on) override {
    AdaptedModule::train(on);
    module_->train(on);
  }

 private:
  std::shared_ptr<Plain> module_;
};

// Returns any torch::nn::Module with a forward() of one tensor as a model; a model as
// it is.
template <typename Module>
std::shared_ptr<Model> adapt(std::shared_ptr<Module> module) {
  if constexpr (std::is_base_of_v<Model, Module>) {
    return module;
  } else {
    return std::make_shared<Adapted<Module>>(std::move(module));
  }
}

// Does so for a TORCH_MODULE holder: torch::nn::Sequential, for instance.
template <typename Module>
std::shared_ptr<Model> adapt(const torch::nn::ModuleHolder<Module>& holder) {
  return adapt(holder.ptr());
}

}  // namespace lockstep::models
