#include "lockstep/train/evaluate.h"

#include <algorithm>

#include "lockstep/data/loader.h"

namespace lockstep::train {
namespace {

// Evaluation mode as long as it lives.
class EvalMode {
 public:
  explicit EvalMode(models::Model& model) : model_(model) { model_.eval(); }
  ~EvalMode() { model_.train(); }
  EvalMode(const EvalMode&) = delete;
  EvalMode& operator=(const EvalMode&) = delete;

 private:
  models::Model& model_;
};

}  // namespace

std::optional<Tally::Means> evaluate(models::Model& model, const data::Dataset& dataset,
                                     const config::Config& config,
                                     const precision::Policy& policy,
                                     const StopRequest& stop) {
  const EvalMode mode(model);
  const torch::NoGradGuard no_grad;
  const auto batch_size = std::min(config.batch.eval.value(), dataset.size());
  data::Loader loader(dataset, {.batch = batch_size,
                                .workers = config.data.workers.value(),
                                .prefetch = config.data.prefetch.value(),
                                .shuffle = false,
                                .epochs = 1});
  InputStage stage(dataset.spec(), batch_size, model.memory_format(), policy.device);
  Tally tally(policy.device);
  while (const auto* batch = loader.next()) {
    if (stop.signal() != 0) return std::nullopt;
    const auto outcome =
        forward(model, stage.stage(batch->inputs, batch->targets), policy);
    tally.add(outcome.loss_sum, outcome.correct, batch->size);
  }
  return tally.means();
}

}  // namespace lockstep::train
