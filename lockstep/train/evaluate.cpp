#include "lockstep/train/evaluate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/data/device_feed.h"
#include "lockstep/memory/out_of_memory.h"
#include "lockstep/train/step.h"

namespace lockstep::train {
namespace {

// Keeps the model in evaluation mode as long as it lives.
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
    context.beat(run::Phase::exchanging);
  }
  votes.cast(context.ballot ? context.ballot() : comm::Ballot{});
  return (comm::Votes::any(votes.count()) & comm::kStop) != 0;
}

// The losses of an evaluation: sums and what they are divided by, on the device.
class LossSums {
 public:
  LossSums(const task::Task& task, const torch::Device& device)
      : task_(task),
        size_(static_cast<std::int64_t>(task.losses().size())),
        sums_(torch::zeros({2, size_}, torch::dtype(torch::kFloat64).device(device))) {}

  void add(const task::Sums& sums, const task::Sums& weights, std::int64_t samples) {
    for (std::int64_t i = 0; i < size_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      sums_[0][i].add_(sums[at]);
      if (weights[at].defined()) {
        sums_[1][i].add_(weights[at]);
      } else {
        sums_[1][i].add_(static_cast<double>(samples * task_.losses()[at].per_sample));
      }
    }
    samples_ += samples;
  }

  // Returns the means over the ranks. A loss without any target that counts is NaN, and
  // not part of the total. Collective.
  task::Means means(comm::World& world, std::int64_t step) const {
    auto all = torch::empty({2 * size_ + 1}, torch::kFloat64);
    all.narrow(0, 0, 2 * size_).copy_(sums_.flatten());
    all[2 * size_] = static_cast<double>(samples_);
    if (world.size() > 1) world.cpu().all_reduce(all).wait();
    const auto* sum = all.const_data_ptr<double>();
    constexpr auto kNothing = std::numeric_limits<double>::quiet_NaN();
    task::Means means;
    means.count = static_cast<std::int64_t>(sum[2 * size_]);
    bool any = false;
    for (std::int64_t i = 0; i < size_; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const bool counts = sum[size_ + i] > 0;
      const auto mean = counts ? sum[i] / sum[size_ + i] : kNothing;
      if (counts) means.loss += task_.coefficient(at, step) * mean;
      any = any || counts;
      if (size_ > 1) {
        means.values.push_back(
            {"loss_" + task_.losses()[at].name, mean, task::Better::less});
      }
    }
    if (!any) means.loss = kNothing;
    return means;
  }

 private:
  const task::Task& task_;
  std::int64_t size_;
  torch::Tensor sums_;  // (2, losses): sums, weights
  std::int64_t samples_ = 0;
};

// Logs which values are NaN: a metric that has nothing to measure would else look like
// a bad model.
void warn_of_nan(const task::Means& means) {
  constexpr std::size_t kMostNamed = 5;
  std::vector<std::string> names;
  if (std::isnan(means.loss)) names.emplace_back("loss");
  for (const auto& one : means.values) {
    if (std::isnan(one.value)) names.push_back(one.name);
  }
  if (names.empty()) return;
  const auto all = names.size();
  names.resize(std::min(all, kMostNamed));
  const auto others =
      all > kMostNamed ? fmt::format(" and {} others", all - kMostNamed) : "";
  log::warning("eval",
               fmt::format("{}{}: NaN, and never the best; there is nothing to measure "
                           "where no target counts (ignored, masked or missing) or all "
                           "are alike, or the model's outputs are NaN",
                           text::join(names, ", "), others));
}

// The forward passes of one rank.
class Passes {
 public:
  struct Batches {
    const data::SampleSpec& spec;
    std::int64_t largest;  // samples of one
  };
  Passes(models::Model& model, const Batches& batches, const EvalContext& context)
      : task_(context.task),
        policy_(context.policy),
        forward_(model, policy_),
        stage_({.spec = batches.spec,
                .wanted = data::wanted_by(model.inputs(), task_.fields()),
                .format = model.memory_format(),
                .device = policy_.device}),
        losses_(task_, policy_.device),
        metrics_(task_.metrics()),
        world_(context.world),
        strategy_(context.strategy),
        matches_(strategy_ != nullptr && strategy_->forwards_must_match()),
        retries_(context.retries),
        at_once_(batches.largest) {
    stage_.reserve(batches.largest);
  }

  // Unless the ranks' passes must match no other rank takes part in one without
  // gradients, so this one alone can take smaller pieces from now on.
  void add(const data::Batch& batch) {
    std::int64_t begin = 0;
    while (goes_on(begin < batch.size)) {
      if (begin == batch.size) {
        strategy_->empty_forward();
        continue;
      }
      const auto count = std::min(at_once_, batch.size - begin);
      const auto piece = try_piece(batch, begin, count);
      if (!piece) continue;
      begin += count;
      losses_.add(piece->sums, piece->weights, count);
      metrics_.observe(piece->outputs, *piece->staged);
    }
  }

  task::Means result(comm::World& world, std::int64_t step) {
    auto means = losses_.means(world, step);
    for (auto& value : metrics_.values(world.cpu())) {
      means.values.push_back(std::move(value));
    }
    return means;
  }

 private:
  // Returns whether another pass is made: by this rank or, where they must match, by
  // any.
  bool goes_on(bool here) const {
    if (!matches_) return here;
    const auto any = torch::full({1}, here ? 1 : 0, torch::kInt64);
    world_.cpu().all_reduce(any, comm::Reduce::max).wait();
    return any.item<std::int64_t>() != 0;
  }

  struct Portion {
    const Named* staged;
    Named outputs;
    task::Sums sums, weights;
  };
  // Returns nothing if there was no memory for it: pieces are smaller from then on.
  std::optional<Portion> try_piece(const data::Batch& batch, std::int64_t begin,
                                   std::int64_t count) {
    const task::Pass pass{false, policy_.loss_dtype()};
    try {
      Portion piece{.staged = &stage_.stage(batch, begin, count)};
      const auto run = [&] { piece.outputs = forward_(*piece.staged); };
      if (strategy_ != nullptr) {
        strategy_->forward(std::ref(run));
      } else {
        run();
      }
      piece.sums = task_.sums(piece.outputs, *piece.staged, pass);
      piece.weights = task_.weights(*piece.staged, pass);
      return piece;
    } catch (const std::exception& error) {
      if (!retries_ || !memory::is_out_of_memory(error) || count == 1) throw;
      at_once_ = (count + 1) / 2;
      memory::empty_cache(policy_.device);
      log::warning(
          "eval",
          fmt::format("out of memory with batches of {}: {} from here on (batch.eval)",
                      count, at_once_));
      return std::nullopt;
    }
  }

  const task::Task& task_;
  const precision::Policy& policy_;
  Forward forward_;
  data::BatchStage stage_;
  LossSums losses_;
  task::MetricSet metrics_;
  comm::World& world_;
  parallel::Strategy* const strategy_;
  const bool matches_;  // every rank takes part in every pass
  const bool retries_;
  std::int64_t at_once_;
};

}  // namespace

std::optional<task::Means> evaluate(models::Model& model, const data::Dataset& dataset,
                                    const EvalContext& context) {
  const EvalMode mode(model);
  const torch::NoGradGuard no_grad;
  const auto share = std::min(context.batch, dataset.size());
  auto options = context.loader;
  options.batch = share * context.world.size();
  data::Loader loader(dataset, options);
  data::DeviceFeed feed(loader, context.policy.device,
                        data::wanted_by(model.inputs(), context.task.fields()));
  Passes passes(model, {.spec = dataset.spec(), .largest = share}, context);
  std::int64_t batches = 0;
  while (const auto* batch = feed.next()) {
    if (context.limit_batches > 0 && batches++ == context.limit_batches) break;
    if (stop_is_agreed(context)) return std::nullopt;
    const bool is_new =
        context.shapes != nullptr && context.shapes->is_new(*batch, share);
    if (context.beat) {
      context.beat(is_new ? run::Phase::warming_up : run::Phase::evaluating);
    }
    passes.add(*batch);
  }
  auto means = passes.result(context.world, context.step);
  if (context.world.rank() == 0) warn_of_nan(means);
  return means;
}

}  // namespace lockstep::train
