#pragma once

#include "lockstep/parallel/detail/flat_optimizers.h"
#include "lockstep/parallel/strategy_state.h"

namespace lockstep::parallel::detail {

// The state of a model that every rank has as a whole: what is trained lies in the
// engine's flat buffers, the rest in the module.
//
// Lifetime: the module, the engine and the optimizers outlive it.
class ReplicatedState : public StrategyState {
 public:
  struct Rank {
    std::size_t rank = 0, ranks = 1;
    // False if what is not trained comes from elsewhere: the weights under adapters.
    bool saves_frozen = true;
  };
  ReplicatedState(torch::nn::Module& module, Engine& engine, FlatOptimizers& optimizers,
                  const Rank& rank)
      : module_(module), engine_(engine), optimizers_(optimizers), rank_(rank) {}

  checkpoint::Pieces to_save() const override;
  checkpoint::Pieces to_load() const override;
  std::vector<checkpoint::Expected> expected() const override;
  std::vector<std::string> order() const override;
  UnusedSteps unused_steps() const override { return optimizers_.unused_steps(); }
  void use_unused_steps(const UnusedSteps& steps) override {
    optimizers_.use_unused_steps(steps);
  }

 private:
  checkpoint::Pieces untrained() const;

  torch::nn::Module& module_;
  Engine& engine_;
  FlatOptimizers& optimizers_;
  const Rank rank_;
};

}  // namespace lockstep::parallel::detail
