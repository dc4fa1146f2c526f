#include "lockstep/train/updates.h"

#include "lockstep/base/error.h"

namespace lockstep::train {

void Updates::update(const Now& now) {
  const auto done =
      parts_.strategy.update({.lr = now.lr,
                              .loss_scale = scaler_.scale(),
                              .wants_norm = now.wants_norm,
                              .skips_nonfinite = skips_nonfinite(parts_.train, scaler_),
                              .values_may_travel = now.values_may_travel});
  norm_ = done.norm;
  // The weights are as before; so are the sums, which a NaN would spoil.
  if (done.skipped) parts_.tally.rewind();
  note(done.skipped, parts_.state.steps + 1);
}

void Updates::update_held(const Now& now, StepGraph& graph, bool waits) {
  norm_ = graph.update(now.lr, now.wants_norm, parts_.state.steps);
  if (waits || !skips_nonfinite(parts_.train, scaler_)) settle(&graph, /*all=*/true);
}

void Updates::settle(StepGraph* graph, bool all) {
  if (graph == nullptr) return;
  for (const auto& [step, skipped, targets] : graph->outcomes(all)) {
    if (skipped) parts_.tally.count() -= targets;
    note(skipped, step);
  }
}

void Updates::note(bool skipped, std::int64_t step) {
  auto& state = parts_.state;
  if (skipped) {
    state.skipped += 1;
    state.skipped_in_a_row += 1;
    parts_.reporter.skipped(step, scaler_.scale());
    const auto most = parts_.train.max_skipped;
    if (!scaler_.active() && most > 0 && state.skipped_in_a_row >= most) {
      throw Error(Fault::diverged, "train: NaN or inf gradients in ", most,
                  " steps in a row, up to step ", step,
                  " (train.max_skipped); lower optim.lr, or set optim.clip_norm");
    }
  } else {
    state.skipped_in_a_row = 0;
  }
  scaler_.update(skipped);
}

}  // namespace lockstep::train
