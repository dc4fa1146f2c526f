#include "lockstep/train/evaluate.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/data/device_feed.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/train/out_of_memory.h"

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
  // Another rank may be busy with something longer: saving, for example.
  if (context.beat && context.world.size() > 1) {
    context.beat(monitor::Phase::exchanging);
  }
  votes.cast(context.ballot ? context.ballot() : comm::Ballot{});
  return (comm::Votes::any(votes.count()) & comm::kStop) != 0;
}

// The forward passes of one rank.
class Passes {
 public:
  Passes(models::Model& model, const data::Dataset& dataset, const EvalContext& context,
         std::int64_t largest)
      : model_(model),
        policy_(context.policy),
        stage_(dataset.spec(), largest, model.memory_format(), policy_.device),
        tally_(policy_.device),
        metrics_(make_metrics(context.config.eval, dataset.spec().num_classes)),
        retries_(context.config.memory.on_out_of_memory ==
                 config::OnOutOfMemory::retry),
        at_once_(largest) {}

  // No other rank takes part in a forward pass without gradients, so this one alone can
  // take smaller pieces from now on.
  void add(const data::Batch& batch) {
    std::int64_t begin = 0;
    while (begin < batch.size) {
      const auto count = std::min(at_once_, batch.size - begin);
      const auto outcome = try_piece(batch.inputs.narrow(0, begin, count),
                                     batch.targets.narrow(0, begin, count));
      if (!outcome) continue;
      begin += count;
      tally_.add(outcome->loss_sum, outcome->correct, outcome->count);
      for (const auto& metric : metrics_) {
        metric->add({outcome->logits, outcome->answers});
      }
    }
  }

  Evaluation result(comm::World& world) {
    Evaluation all;
    all.means = world.size() == 1 ? tally_.means() : tally_.means(world.cpu());
    all.values = {{"loss", all.means.loss}, {"accuracy", all.means.accuracy}};
    for (const auto& metric : metrics_) {
      for (auto& value : metric->values(world.cpu())) all.values.push_back(value);
    }
    return all;
  }

 private:
  // Nothing if there was no memory for it: then pieces are smaller from now on.
  std::optional<Outcome> try_piece(const torch::Tensor& inputs,
                                   const torch::Tensor& targets) {
    const auto count = inputs.size(0);
    try {
      return forward(model_, stage_.stage(inputs, targets), policy_);
    } catch (const std::exception& error) {
      if (!retries_ || !is_out_of_memory(error) || count == 1) throw;
      at_once_ = (count + 1) / 2;
      empty_cache(policy_.device);
      log::warning("eval", fmt::format("out of memory with {} samples at once: {} from "
                                       "now on (batch.eval)",
                                       count, at_once_));
      return std::nullopt;
    }
  }

  models::Model& model_;
  const precision::Policy& policy_;
  InputStage stage_;
  Tally tally_;
  std::vector<std::unique_ptr<Metric>> metrics_;
  const bool retries_;
  std::int64_t at_once_;
};

}  // namespace

std::optional<Evaluation> evaluate(models::Model& model, const data::Dataset& dataset,
                                   const EvalContext& context) {
  const EvalMode mode(model);
  const torch::NoGradGuard no_grad;
  const int ranks = context.world.size();
  const auto share = std::min(context.config.batch.eval.value(), dataset.size());
  const data::Place place{context.world.rank(), ranks};
  data::Loader loader(dataset,
                      data::eval_options(context.config, place, share * ranks));
  data::DeviceFeed feed(loader, context.policy.device);
  Passes passes(model, dataset, context, share);
  std::int64_t batches = 0;
  while (const auto* batch = feed.next()) {
    if (context.limit_batches > 0 && batches++ == context.limit_batches) break;
    if (stop_is_agreed(context)) return std::nullopt;
    const bool is_new = context.shapes != nullptr &&
                        context.shapes->is_new(batch->inputs.sizes(), share);
    if (context.beat) {
      context.beat(is_new ? monitor::Phase::warming_up : monitor::Phase::evaluating);
    }
    passes.add(*batch);
  }
  return passes.result(context.world);
}

}  // namespace lockstep::train
