#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "lockstep/config/ema.h"
#include "lockstep/optim/state.h"

namespace lockstep::optim {

// An exponential moving average of a flat buffer of weights, or of a shard of one. It
// is kept in float32 (float64 for float64 weights).
class Ema {
 public:
  // The average starts at the weights.
  Ema(const config::EmaConfig& config, const torch::Tensor& weights);

  // To be called after every step; updates at every ema.every-th. `weights` are in full
  // precision: Optimizer::weights().
  void update(const torch::Tensor& weights);

  // update() in three parts, for a step that is held by a CUDA graph: rest() returns
  // how much the average follows in it, if it is made when `later` more have been
  // counted (0: not at all); launch() takes that number on the device; count_step()
  // records the step.
  double rest(int later) const;
  void launch(const torch::Tensor& weights, const torch::Tensor& rest);
  void count_step();

  // Puts the average into `values` until swap_out() restores the weights; `values` may
  // be bfloat16 or float16. In between the weights must not be stepped.
  void swap_in(torch::Tensor& values);
  void swap_out(torch::Tensor& values);
  bool is_swapped_in() const noexcept { return kept_.defined(); }

  const torch::Tensor& average() const noexcept { return average_; }

  // Returns the state for checkpoints; the names are always the same.
  NamedTensors state() const;
  void load(const NamedTensors& state);

 private:
  bool is_due(std::int64_t step) const { return step % config_.every == 0; }
  double decay(std::int64_t updates) const;

  config::EmaConfig config_;
  torch::Tensor average_;
  torch::Tensor steps_, updates_;  // counts on the host, without dimension
  torch::Tensor kept_;             // the values, while the average is in their place
};

}  // namespace lockstep::optim
