#include "lockstep/train/evaluate.h"

#include <algorithm>

#include "lockstep/data/device_feed.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"

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

// All ranks leave together, or none does.
bool stop_is_agreed(const EvalContext& context) {
  auto& votes = context.world.votes();
  const int signal = context.stop.signal();
  // Another rank may be busy with something longer: saving, for example.
  if (context.beat && context.world.size() > 1) {
    context.beat(monitor::Phase::exchanging);
  }
  votes.cast({.flags = signal != 0 ? comm::kStop : comm::Flags{0}, .value = signal});
  return (comm::Votes::any(votes.count()) & comm::kStop) != 0;
}

}  // namespace

std::optional<Tally::Means> evaluate(models::Model& model, const data::Dataset& dataset,
                                     const EvalContext& context) {
  const EvalMode mode(model);
  const torch::NoGradGuard no_grad;
  const auto& config = context.config;
  const int ranks = context.world.size();
  const auto share = std::min(config.batch.eval.value(), dataset.size());
  const data::Place place{context.world.rank(), ranks};
  data::Loader loader(dataset, data::eval_options(config, place, share * ranks));
  data::DeviceFeed feed(loader, context.policy.device);
  InputStage stage(dataset.spec(), share, model.memory_format(), context.policy.device);
  Tally tally(context.policy.device);
  while (const auto* batch = feed.next()) {
    if (stop_is_agreed(context)) return std::nullopt;
    if (context.beat) context.beat(monitor::Phase::evaluating);
    if (batch->size == 0) continue;
    const auto outcome =
        forward(model, stage.stage(batch->inputs, batch->targets), context.policy);
    tally.add(outcome.loss_sum, outcome.correct, outcome.count);
  }
  return ranks == 1 ? tally.means() : tally.means(context.world.cpu());
}

}  // namespace lockstep::train
