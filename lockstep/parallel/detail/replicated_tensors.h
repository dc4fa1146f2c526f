#pragma once

#include "lockstep/parallel/detail/flat_optimizers.h"
#include "lockstep/parallel/strategy_state.h"

namespace lockstep::parallel::detail {

// Whole tensors out of the engine's and the optimizers' flat ones.
//
// Lifetime: both outlive it.
class ReplicatedTensors : public FullTensors {
 public:
  ReplicatedTensors(Engine& engine, FlatOptimizers& optimizers)
      : engine_(engine), optimizers_(optimizers) {}

  torch::Tensor parameter(std::string_view name) override;
  void set_parameter(std::string_view name, const torch::Tensor& value) override;
  torch::Tensor gradient(std::string_view name) override;
  void set_gradient(std::string_view name, const torch::Tensor& value) override;
  std::map<std::string, torch::Tensor> optimizer_state(std::string_view name) override;
  void set_optimizer_state(std::string_view name, const std::string& state,
                           const torch::Tensor& value) override;

 private:
  Engine& engine_;
  FlatOptimizers& optimizers_;
};

}  // namespace lockstep::parallel::detail
