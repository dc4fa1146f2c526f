// The training loop: read Training::run().
#include "lockstep/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/same.h"
#include "lockstep/data/device_feed.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/train/device.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/step.h"
#include "lockstep/train/trace.h"

namespace lockstep::train {
namespace {

using monitor::Phase;

constexpr int kSomeRank = -1;

optim::RunLength length_of(const config::Config& config, std::int64_t num_samples) {
  const auto options = data::train_options(config, {});
  const auto samples = data::samples_per_epoch(num_samples, options);
  const auto per_epoch = (samples + options.batch - 1) / options.batch;
  const auto steps = config.train.steps.value();
  return {.steps = steps > 0 ? steps : config.train.epochs.value() * per_epoch,
          .steps_per_epoch = per_epoch,
          .global_batch = options.batch};
}

// Process-wide settings and the model, by one rank of a process at a time.
struct Built {
  precision::Policy policy;
  std::shared_ptr<models::Model> model;
};

Built build(const config::Config& config, const torch::Device& device, Shared& shared) {
  const std::lock_guard lock(shared.setting_up);
  Built built;
  built.policy = set_up_process(config, device);
  const auto& spec = shared.train_data->spec();
  built.model = models::build(config.model, {spec.shape, spec.num_classes});
  built.model->to(device, built.policy.dtype());
  use_layout(*built.model);
  return built;
}

// data.class_weights or data.balanced_loss, on the device; undefined if all are alike.
torch::Tensor weights_of(const config::Config& config, const data::Dataset& train,
                         const precision::Policy& policy) {
  const auto weights = data::class_weights(config.data, train);
  if (weights.empty()) return {};
  return torch::tensor(weights, policy.dtype()).to(policy.device);
}

// What is drawn from now on, by dropout for example, is each rank's own.
void seed_apart(models::Model& model, const comm::World& world, std::uint64_t seed,
                const torch::Device& device, Shared& shared) {
  constexpr std::uint64_t kApart = 0x9E3779B97F4A7C15ULL;
  const auto own = seed + kApart * static_cast<std::uint64_t>(world.rank());
  if (shared.ranks > 1) return models::seed_dropout(model, own, device);
  if (world.size() > 1) torch::manual_seed(own);
}

// One training run. The members are made in this order, from the device to the loader;
// run() is the loop.
class Training {
 public:
  Training(const config::Config& config, const monitor::RunDirectory& run,
           Reporter& reporter, const StopRequest& stop, comm::World& world,
           Shared& shared)
      : config_(config),
        run_(run),
        reporter_(reporter),
        stop_(stop),
        world_(world),
        train_data_(*shared.train_data),
        eval_data_(*shared.eval_data),
        last_step_(length_of(config, train_data_.size()).steps),
        schedule_(config.optim, config.schedule, length_of(config, train_data_.size())),
        built_(build(config, world.data().device(), shared)),
        strategy_(parallel::make_strategy(config, *built_.model, world)),
        step_({.model = built_.model,
               .strategy = *strategy_,
               .policy = built_.policy,
               .spec = train_data_.spec(),
               .micro_batch = std::min(config.batch.micro.value(), train_data_.size()),
               .class_weights = weights_of(config, train_data_, built_.policy)}),
        loader_(train_data_, data::train_options(config, {world.rank(), world.size()})),
        feed_(loader_, built_.policy.device),
        progress_(config, world, reporter, loader_),
        tally_(built_.policy.device) {
    check_same_data();
    seed_apart(*built_.model, world, config.run.seed, built_.policy.device, shared);
    if (shared.trace) trace_.emplace(*shared.trace, *built_.model, train_data_, world);
    log_start();
  }

  Result run() {
    reporter_.model(*built_.model);
    reporter_.started(last_step_);
    train_begin_ = clock_.now();
    progress_.start(train_begin_);
    agree();  // somebody may have asked to stop before the first step
    while (result_.steps < last_step_ && !leaving_) {
      beat(Phase::loading);
      const auto& batch = *feed_.next();
      const double lr = schedule_.lr(result_.steps, batch.begin.epoch);
      beat(Phase::training);
      step_.backward(batch, tally_, [this] { world_.votes().cast(ballot()); });
      if (world_.size() > 1) beat(Phase::exchanging);
      strategy_->finish();
      take_ballots();
      if (trace_) show_gradients();
      strategy_->update({.lr = lr});
      if (trace_) trace_->updated(batch, lr, tally_);
      progress_.step(batch, strategy_->times());
      account(batch);
      check_agreed_finite(lr);
      if (is_due(config_.train.log_every) || result_.steps == 1) report(lr);
      if (result_.steps < last_step_ && !leaving_ && evaluation_is_due(batch)) {
        evaluate_now();
      }
    }
    return finish();
  }

 private:
  void beat(Phase phase) { reporter_.beat(result_.steps, phase); }

  void show_gradients() {
    strategy_->gather_gradients();
    trace_->exchanged();
  }

  // What this rank tells the others of its step.
  comm::Ballot ballot() const {
    comm::Ballot own;
    const auto limit = config_.train.max_time;
    if (limit.count() > 0 && clock_.now() - begin_ >= limit) {
      own.flags |= comm::kOutOfTime;
    }
    // On a GPU looking would wait for it: there report() looks.
    if (built_.policy.device.is_cpu() && !std::isfinite(tally_.means().loss)) {
      own.flags |= comm::kNonFinite;
    }
    if (const int signal = stop_.signal()) {
      own.flags |= comm::kStop;
      own.value = signal;
    }
    return own;
  }

  void agree() {
    world_.votes().cast(ballot());
    take_ballots();
  }

  void take_ballots() {
    ballots_ = world_.votes().count();
    const auto flags = comm::Votes::any(ballots_);
    result_.out_of_time = (flags & comm::kOutOfTime) != 0;
    leaving_ = result_.out_of_time;
    note_stop(ballots_);
  }

  void note_stop(const std::vector<comm::Ballot>& ballots) {
    for (const auto& one : ballots) {
      if ((one.flags & comm::kStop) == 0) continue;
      leaving_ = true;
      if (result_.stopped_by == 0) result_.stopped_by = static_cast<int>(one.value);
    }
  }

  void check_agreed_finite(double lr) {
    for (std::size_t rank = 0; rank < ballots_.size(); ++rank) {
      if ((ballots_[rank].flags & comm::kNonFinite) == 0) continue;
      // Its own value is a rank's own; the others know only that there is one.
      const auto loss = tally_.means().loss;
      check_finite(std::isfinite(loss) ? std::nan("") : loss, lr,
                   static_cast<int>(rank));
    }
  }

  void account(const data::Batch& batch) {
    result_.steps += 1;
    result_.samples += batch.global_size;
    epoch_ = static_cast<double>(batch.begin.epoch) +
             static_cast<double>(batch.begin.consumed + batch.global_size) /
                 static_cast<double>(loader_.samples_per_epoch());
    reporter_.step(result_.steps);
    // Asked for only: a line a step is a write a step, and a log without bound.
    if (config_.monitor.verbosity != config::Verbosity::debug) return;
    log::debug("train", fmt::format("step {}: {} samples, epoch {:.3f}", result_.steps,
                                    batch.size, epoch_));
  }

  // Nodes may have copies of their own: the number of steps follows from the samples.
  void check_same_data() const {
    if (world_.size() == 1) return;
    comm::check_same(world_.cpu(), "split of the data",
                     {{"training samples", str(train_data_.size())},
                      {"test samples", str(eval_data_.size())}});
  }

  void log_start() const {
    log::info("train", fmt::format("{}, {}, {}, {} threads, seed {}", strategy_->name(),
                                   built_.policy.device.str(),
                                   config::name_of(config_.precision.mode),
                                   config_.parallel.threads.value(), config_.run.seed));
    log::info("data",
              fmt::format("{}: {} training and {} test samples, read in {:.2f} s",
                          config_.data.name, train_data_.size(), eval_data_.size(),
                          seconds_between(begin_, clock_.now())));
    log::info("train", fmt::format("{}: {} parameters; {} steps", config_.model.name,
                                   parallel::count_elements(strategy_->parameters()),
                                   last_step_));
    if (config_.batch.global.value() > train_data_.size()) {
      log::warning("train",
                   fmt::format("batch.global is {}, but there are only {} samples: "
                               "every step takes all of them",
                               config_.batch.global.value(), train_data_.size()));
    }
  }

  // Every so many steps, and after the last.
  bool is_due(std::int64_t every) const {
    return result_.steps == last_step_ || (every > 0 && result_.steps % every == 0);
  }

  bool evaluation_is_due(const data::Batch& batch) const {
    const auto every = config_.eval.every.value();
    return every == config::kEachEpoch ? batch.ends_epoch : is_due(every);
  }

  // Reading the numbers waits for the device, which is why this does not happen at
  // every step.
  void report(double lr) {
    const auto report = progress_.report(
        {.step = result_.steps, .total_steps = last_step_, .epoch = epoch_, .lr = lr},
        tally_);
    check_finite(report.means.loss, lr, world_.size() == 1 ? 0 : kSomeRank);
    result_.train_loss = report.means.loss;
    result_.backend = report.backend;
    result_.memory.clear();
    for (const auto& rank : report.ranks) result_.memory.push_back(rank.memory);
  }

  void check_finite(double loss, double lr, int rank) const {
    if (std::isfinite(loss)) return;
    const auto& parameters = strategy_->parameters();
    const auto bad = parallel::bad_gradients(parameters);
    const bool telling = !bad.empty() && bad.size() < parameters.size();
    throw Error(Fault::diverged, "train: the loss is ", loss, " by step ",
                result_.steps, rank == kSomeRank ? " (some rank" : str(" (rank ", rank),
                telling ? ", bad gradients: " + text::join(bad, ", ") : "",
                "); lower optim.lr (now ", lr, ") or lengthen schedule.warmup_steps");
  }

  void evaluate_now() {
    reporter_.beat(result_.steps, Phase::evaluating);
    const auto begin = clock_.now();
    strategy_->share_buffers();
    const auto means = evaluate(*built_.model, eval_data_,
                                {.config = config_,
                                 .policy = built_.policy,
                                 .stop = stop_,
                                 .world = world_,
                                 .beat = [this](Phase phase) { beat(phase); }});
    const auto took = clock_.now() - begin;
    progress_.skip(took);  // evaluating is not training time
    train_begin_ += took;
    if (!means) return note_stop(world_.votes().count());
    result_.eval = means;
    result_.best_accuracy = std::max(result_.best_accuracy, means->accuracy);
    reporter_.eval(
        {result_.steps, epoch_, *means, seconds_between(begin, begin + took)});
  }

  // The weights first: nothing that comes after may lose them. A run that was asked to
  // stop is not evaluated.
  Result finish() {
    result_.train_seconds = seconds_between(train_begin_, clock_.now());
    if (const int signal = result_.stopped_by) {
      log::warning("train", fmt::format("stopped by {} after step {}",
                                        ::strsignal(signal), result_.steps));
    }
    const bool saves = config_.checkpoint.final_weights && world_.rank() == 0;
    if (saves && result_.steps > 0) save_weights();
    if (result_.stopped_by == 0) evaluate_now();
    result_.seconds = seconds_between(begin_, clock_.now());
    reporter_.finished(result_);
    return result_;
  }

  void save_weights() {
    reporter_.beat(result_.steps, Phase::saving);
    const auto file = run_.path() / "model.safetensors";
    checkpoint::write_safetensors(file, checkpoint::state_of(*built_.model));
    result_.weights = file.string();
    log::info("train", fmt::format("weights written to {}", result_.weights));
  }

  const Clock& clock_ = Clock::system();
  const SteadyTime begin_ = clock_.now();
  const config::Config& config_;
  const monitor::RunDirectory& run_;
  Reporter& reporter_;
  const StopRequest& stop_;
  comm::World& world_;

  const data::Dataset &train_data_, &eval_data_;
  const std::int64_t last_step_;
  optim::Schedule schedule_;
  const Built built_;
  const std::unique_ptr<parallel::Strategy> strategy_;
  Step step_;
  data::Loader loader_;
  data::DeviceFeed feed_;
  Progress progress_;
  Tally tally_;
  std::optional<Trace> trace_;

  Result result_;
  bool leaving_ = false;               // agreed
  std::vector<comm::Ballot> ballots_;  // of the last step, by rank
  double epoch_ = 0;
  SteadyTime train_begin_;  // moved on by the time spent evaluating
};

}  // namespace

Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world,
             const std::optional<monitor::TraceRequest>& trace) {
  const auto shared = open_shared(config);
  shared->trace = trace;
  return train(config, run, reporter, stop, world, *shared);
}

Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world,
             Shared& shared) {
  return Training(config, run, reporter, stop, world, shared).run();
}

}  // namespace lockstep::train
