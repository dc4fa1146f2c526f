#pragma once

#include <unordered_set>

#include "lockstep/parallel/detail/flat_optimizers.h"
#include "lockstep/parallel/strategy_state.h"

namespace lockstep::parallel::detail {

// The state of a model and its optimizer: what is trained lies in the engine's flat
// buffers, or in shards of them, the rest in the module; at stage 3 in shards, too.
//
// Lifetime: the module, the engine and the optimizers outlive it.
class ReplicatedState : public StrategyState {
 public:
  struct Parts {
    torch::nn::Module& module;
    Engine& engine;
    FlatOptimizers& optimizers;
    std::size_t rank = 0, ranks = 1;
    // False if what is not trained comes from elsewhere: the weights under adapters.
    bool saves_frozen = true;
  };
  explicit ReplicatedState(const Parts& parts);

  checkpoint::Pieces to_save() const override;
  checkpoint::Pieces to_load() const override;
  std::vector<checkpoint::Expected> expected() const override;
  std::vector<std::string> order() const override;
  UnusedSteps unused_steps() const override { return parts_.optimizers.unused_steps(); }
  void use_unused_steps(const UnusedSteps& steps) override {
    parts_.optimizers.use_unused_steps(steps);
  }

 private:
  checkpoint::Pieces untrained() const;
  checkpoint::Pieces frozen_shards(bool to_save) const;

  const Parts parts_;
  std::unordered_set<const c10::TensorImpl*> sharded_;  // of those not trained
};

}  // namespace lockstep::parallel::detail
