#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "lockstep/config/config.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/loss_scaler.h"
#include "lockstep/task/tally.h"
#include "lockstep/train/report.h"
#include "lockstep/train/run_state.h"
#include "lockstep/train/step_graph.h"

namespace lockstep::train {

// Applies the gradients of steps, skips those that are not finite, and moves the loss
// scale with them.
//
// Whether a step that a CUDA graph makes was skipped is known only later: settle()
// takes up what is known by then.
class Updates {
 public:
  struct Parts {
    const config::TrainConfig& train;
    const config::PrecisionConfig& precision;
    parallel::Strategy& strategy;
    task::Tally& tally;
    Reporter& reporter;
    RunState& state;  // counts the skipped steps
  };
  explicit Updates(const Parts& parts) : parts_(parts), scaler_(parts.precision) {}

  struct Now {
    double lr = 0;
    bool wants_norm = false;
    bool values_may_travel = false;  // nobody reads parameters before the next step
  };
  // Applies the gradients of the step after `state.steps`.
  void update(const Now& now);
  // Does the same by the graph that has computed them. With `waits` it waits until it
  // is known whether the step was skipped.
  void update_held(const Now& now, StepGraph& graph, bool waits);

  // Takes up the outcomes of the steps that graphs made: all but the last, or all.
  // `graph` may be null.
  void settle(StepGraph* graph, bool all);

  precision::LossScaler& scaler() noexcept { return scaler_; }
  const precision::LossScaler& scaler() const noexcept { return scaler_; }
  // Returns the norm of the gradients of the last step; undefined if it is not known.
  const torch::Tensor& norm() const noexcept { return norm_; }

 private:
  void note(bool skipped, std::int64_t step);

  Parts parts_;
  precision::LossScaler scaler_;
  torch::Tensor norm_;
};

}  // namespace lockstep::train
