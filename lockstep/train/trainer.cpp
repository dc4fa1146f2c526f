// The training loop: read Training::run().
#include "lockstep/train/trainer.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/text.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/same.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/train/device.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/step.h"

namespace lockstep::train {
namespace {

using monitor::Phase;

constexpr int kSomeRank = -1;

std::int64_t total_steps(const config::Config& config, std::int64_t num_samples) {
  const auto batch = config.batch.global.value();
  const auto per_epoch = (num_samples + batch - 1) / batch;
  const auto steps = config.train.steps.value();
  const auto total = steps > 0 ? steps : config.train.epochs.value() * per_epoch;
  if (config.schedule.warmup_steps > total) {
    throw Error(Fault::config, "schedule.warmup_steps: ", config.schedule.warmup_steps,
                " is more than the run has steps: ", config.train.epochs.value(),
                " epochs * ", per_epoch, " steps = ", total);
  }
  return total;
}

data::LoaderOptions loader_options(const config::Config& config,
                                   const comm::World& world) {
  return {.batch = config.batch.global.value(),
          .rank = world.rank(),
          .ranks = world.size(),
          .workers = config.data.workers.value(),
          .prefetch = config.data.prefetch.value(),
          .shuffle = config.data.shuffle,
          .seed = config.run.seed};
}

std::shared_ptr<models::Model> build_model(const config::Config& config,
                                           const data::SampleSpec& spec,
                                           const torch::Device& device) {
  auto model = models::build(config.model, {spec.shape, spec.num_classes});
  model->to(device);
  use_layout(*model);
  return model;
}

// Every rank starts from rank 0's weights and buffers; what is drawn from now on, by
// dropout for example, is each rank's own.
void share_start(models::Model& model, torch::Tensor& values, comm::World& world,
                 std::uint64_t seed) {
  if (world.size() == 1) return;
  comm::check_same(world.cpu(), "parameter", comm::facts_of(model));
  auto& data = world.data();
  data.broadcast(values, 0).wait();
  for (auto& buffer : model.buffers()) data.broadcast(buffer, 0).wait();
  constexpr std::uint64_t kApart = 0x9E3779B97F4A7C15ULL;
  torch::manual_seed(seed + kApart * static_cast<std::uint64_t>(world.rank()));
}

// Both splits must be of one kind: what the model learns from is what it is tested on.
void check_alike(const data::Dataset& train, const data::Dataset& eval) {
  if (train.spec().shape != eval.spec().shape) {
    throw Error(Fault::io, "data: training samples have shape ",
                c10::IntArrayRef(train.spec().shape), ", test samples ",
                c10::IntArrayRef(eval.spec().shape),
                "; they are not of one data set: check data.dir");
  }
  if (eval.spec().num_classes > train.spec().num_classes) {
    throw Error(Fault::io, "data: the test samples have ", eval.spec().num_classes,
                " classes, the training samples only ", train.spec().num_classes,
                "; check data.dir, or raise data.train_samples");
  }
}

// One training run. The members are made in this order, from the device to the loader;
// run() is the loop.
class Training {
 public:
  Training(const config::Config& config, const monitor::RunDirectory& run,
           Reporter& reporter, const StopRequest& stop, comm::World& world)
      : config_(config),
        run_(run),
        reporter_(reporter),
        stop_(stop),
        world_(world),
        policy_(set_up_process(config, world.data().device())),
        train_data_(data::open(config.data, data::Split::train)),
        eval_data_(data::open(config.data, data::Split::eval)),
        last_step_(total_steps(config, train_data_->size())),
        model_(build_model(config, train_data_->spec(), policy_.device)),
        parameters_(*model_),
        optimizer_(optim::make_optimizer(config.optim, parameters_.values())),
        step_(
            {.model = model_,
             .parameters = parameters_,
             .optimizer = *optimizer_,
             .policy = policy_,
             .spec = train_data_->spec(),
             .micro_batch = std::min(config.batch.micro.value(), train_data_->size())}),
        loader_(*train_data_, loader_options(config, world)),
        tally_(policy_.device) {
    check_alike(*train_data_, *eval_data_);
    check_same_data();
    share_start(*model_, parameters_.values(), world, config.run.seed);
    log_start();
  }

  Result run() {
    reporter_.model(*model_);
    reporter_.started(last_step_);
    train_begin_ = window_begin_ = clock_.now();
    agree();  // somebody may have asked to stop before the first step
    while (result_.steps < last_step_ && !leaving_) {
      beat(Phase::loading);
      const auto& batch = *loader_.next();
      const double lr = config_.optim.lr *
                        optim::lr_factor(config_.schedule, result_.steps, last_step_);
      beat(Phase::training);
      step_.backward(batch, tally_);
      exchange();
      step_.update(lr);
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

  // What this rank tells the others of its step.
  comm::Ballot ballot() const {
    comm::Ballot own;
    const auto limit = config_.train.max_time;
    if (limit.count() > 0 && clock_.now() - begin_ >= limit) {
      own.flags |= comm::kOutOfTime;
    }
    // On a GPU looking would wait for it: there report() looks.
    if (policy_.device.is_cpu() && !std::isfinite(tally_.means().loss)) {
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

  // Sums the gradients over the ranks. What ranks tell each other travels meanwhile.
  void exchange() {
    world_.votes().cast(ballot());
    if (world_.size() > 1) {
      beat(Phase::exchanging);
      world_.data().all_reduce(parameters_.gradients()).wait();
    }
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
                 static_cast<double>(train_data_->size());
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
                     {{"training samples", str(train_data_->size())},
                      {"test samples", str(eval_data_->size())}});
  }

  void log_start() const {
    log::info("train", fmt::format("{}, {}, {} threads, seed {}", policy_.device.str(),
                                   config::name_of(config_.precision.mode),
                                   config_.parallel.threads.value(), config_.run.seed));
    log::info("data",
              fmt::format("{}: {} training and {} test samples, read in {:.2f} s",
                          config_.data.name, train_data_->size(), eval_data_->size(),
                          seconds_between(begin_, clock_.now())));
    log::info("train", fmt::format("{}: {} parameters; {} steps", config_.model.name,
                                   parameters_.num_parameters(), last_step_));
    if (config_.batch.global.value() > train_data_->size()) {
      log::warning("train",
                   fmt::format("batch.global is {}, but there are only {} samples: "
                               "every step takes all of them",
                               config_.batch.global.value(), train_data_->size()));
    }
  }

  // Training that waits for its data is slower than it could be.
  void warn_of_waiting(const TrainReport& report, double window_seconds) const {
    if (report.data_wait_seconds < 0.1 ||
        report.data_wait_seconds < 0.1 * window_seconds) {
      return;
    }
    log::warning("data",
                 fmt::format("loader waited {:.0f} ms of the last {:.1f} s; raise "
                             "data.workers (now {})",
                             1e3 * report.data_wait_seconds, window_seconds,
                             config_.data.workers.value()));
  }

  // Every so many steps, and after the last.
  bool is_due(std::int64_t every) const {
    return result_.steps == last_step_ || (every > 0 && result_.steps % every == 0);
  }

  bool evaluation_is_due(const data::Batch& batch) const {
    const auto every = config_.eval.every.value();
    return every == config::kEachEpoch ? batch.ends_epoch : is_due(every);
  }

  // The numbers since the last report. Reading them waits for the device, which is why
  // this does not happen at every step.
  void report(double lr) {
    const auto means = world_.size() == 1 ? tally_.means() : tally_.means(world_.cpu());
    const auto now = clock_.now();
    const TrainReport report{
        .step = result_.steps,
        .total_steps = last_step_,
        .epoch = epoch_,
        .means = means,
        .lr = lr,
        .samples_per_second = static_cast<double>(means.count) /
                              std::max(seconds_between(window_begin_, now), 1e-9),
        .data_wait_seconds = loader_.waited_seconds() - window_waited_,
        .memory_bytes = memory_in_use_bytes(policy_.device)};
    reporter_.train(report);
    check_finite(means.loss, lr, world_.size() == 1 ? 0 : kSomeRank);
    warn_of_waiting(report, seconds_between(window_begin_, now));
    result_.train_loss = means.loss;
    result_.memory_bytes = std::max(result_.memory_bytes, report.memory_bytes);
    tally_.reset();
    window_begin_ = now;
    window_waited_ = loader_.waited_seconds();
  }

  void check_finite(double loss, double lr, int rank) const {
    if (std::isfinite(loss)) return;
    const auto bad = parameters_.bad_gradients();
    const bool telling = !bad.empty() && bad.size() < parameters_.size();
    throw Error(Fault::diverged, "train: the loss is ", loss, " by step ",
                result_.steps, rank == kSomeRank ? " (some rank" : str(" (rank ", rank),
                telling ? ", bad gradients: " + text::join(bad, ", ") : "",
                "); lower optim.lr (now ", lr, ") or lengthen schedule.warmup_steps");
  }

  void evaluate_now() {
    reporter_.beat(result_.steps, Phase::evaluating);
    const auto begin = clock_.now();
    const auto means = evaluate(*model_, *eval_data_,
                                {.config = config_,
                                 .policy = policy_,
                                 .stop = stop_,
                                 .world = world_,
                                 .beat = [this](Phase phase) { beat(phase); }});
    const auto took = clock_.now() - begin;
    window_begin_ += took;  // evaluating is not training time
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
    checkpoint::write_safetensors(file, checkpoint::state_of(*model_));
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

  const precision::Policy policy_;
  const std::unique_ptr<data::Dataset> train_data_, eval_data_;
  const std::int64_t last_step_;
  const std::shared_ptr<models::Model> model_;
  optim::FlatParameters parameters_;
  const std::unique_ptr<optim::Optimizer> optimizer_;
  Step step_;
  data::Loader loader_;
  Tally tally_;

  Result result_;
  bool leaving_ = false;               // agreed
  std::vector<comm::Ballot> ballots_;  // of the last step, by rank
  double epoch_ = 0;
  SteadyTime train_begin_;   // moved on by the time spent evaluating
  SteadyTime window_begin_;  // of the steps since the last report; likewise
  double window_waited_ = 0;
};

}  // namespace

Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world) {
  return Training(config, run, reporter, stop, world).run();
}

}  // namespace lockstep::train
