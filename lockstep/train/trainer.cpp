// The training loop: read Training::run().
#include "lockstep/train/trainer.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/checkpoint/safetensors.h"
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

data::LoaderOptions loader_options(const config::Config& config) {
  return {.batch = config.batch.global.value(),
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

// One training run. The members are made in this order, from the device to the loader;
// run() is the loop.
class Training {
 public:
  Training(const config::Config& config, const monitor::RunDirectory& run,
           Reporter& reporter, const StopRequest& stop)
      : config_(config),
        run_(run),
        reporter_(reporter),
        stop_(stop),
        policy_(set_up_process(config)),
        train_data_(data::open(config.data, data::Split::train)),
        eval_data_(data::open(config.data, data::Split::eval)),
        last_step_(total_steps(config, train_data_->size())),
        model_(build_model(config, train_data_->spec(), policy_.device)),
        parameters_(*model_),
        optimizer_(optim::make_optimizer(config.optim, parameters_.values())),
        step_({.model = model_,
               .parameters = parameters_,
               .optimizer = *optimizer_,
               .policy = policy_,
               .spec = train_data_->spec(),
               .micro_batch = config.batch.micro.value()}),
        loader_(*train_data_, loader_options(config)),
        tally_(policy_.device) {}

  Result run() {
    reporter_.model(*model_);
    reporter_.started(last_step_);
    train_begin_ = window_begin_ = clock_.now();
    while (result_.steps < last_step_ && !interrupted()) {
      const auto& batch = *loader_.next();
      const double lr = config_.optim.lr *
                        optim::lr_factor(config_.schedule, result_.steps, last_step_);
      step_.run(batch, lr, tally_);
      account(batch);
      if (is_due(config_.train.log_every) || result_.steps == 1) report(lr);
      if (result_.steps < last_step_ && evaluation_is_due(batch)) evaluate_now();
    }
    return finish();
  }

 private:
  bool interrupted() {
    const auto limit = config_.train.max_time;
    result_.out_of_time = limit.count() > 0 && clock_.now() - begin_ >= limit;
    return stop_.signal() != 0 || result_.out_of_time;
  }

  void account(const data::Batch& batch) {
    result_.steps += 1;
    result_.samples += batch.size;
    epoch_ = static_cast<double>(batch.begin.epoch) +
             static_cast<double>(batch.begin.consumed + batch.size) /
                 static_cast<double>(train_data_->size());
    reporter_.beat(result_.steps, Phase::training);
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
    const auto means = tally_.means();
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
    check_finite(report);
    reporter_.train(report);
    result_.train_loss = means.loss;
    result_.memory_bytes = std::max(result_.memory_bytes, report.memory_bytes);
    tally_.reset();
    window_begin_ = now;
    window_waited_ = loader_.waited_seconds();
  }

  void check_finite(const TrainReport& report) const {
    if (std::isfinite(report.means.loss)) return;
    const auto culprit = parameters_.first_non_finite_gradient();
    throw Error(Fault::config, "train: the loss is ", report.means.loss, " by step ",
                report.step, " (rank 0",
                culprit.empty() ? "" : ", first bad gradient: " + culprit,
                "); lower optim.lr (now ", report.lr,
                ") or lengthen schedule.warmup_steps");
  }

  void evaluate_now() {
    reporter_.beat(result_.steps, Phase::evaluating);
    const auto begin = clock_.now();
    const auto means = evaluate(*model_, *eval_data_, config_, policy_, stop_);
    const auto took = clock_.now() - begin;
    window_begin_ += took;  // evaluating is not training time
    train_begin_ += took;
    if (!means) return;
    result_.eval = means;
    result_.best_accuracy = std::max(result_.best_accuracy, means->accuracy);
    reporter_.eval(
        {result_.steps, epoch_, *means, seconds_between(begin, begin + took)});
  }

  // A run that was asked to stop says goodbye at once; any other is evaluated and
  // saved.
  Result finish() {
    result_.train_seconds = seconds_between(train_begin_, clock_.now());
    if (stop_.signal() == 0) evaluate_now();
    if (stop_.signal() == 0 && config_.checkpoint.final_weights) save_weights();
    result_.stopped_by = stop_.signal();
    result_.seconds = seconds_between(begin_, clock_.now());
    reporter_.finished(result_);
    return result_;
  }

  void save_weights() {
    reporter_.beat(result_.steps, Phase::saving);
    const auto file = run_.path() / "model.safetensors";
    checkpoint::write_safetensors(file, checkpoint::state_of(*model_));
    result_.weights = file.string();
  }

  const Clock& clock_ = Clock::system();
  const SteadyTime begin_ = clock_.now();
  const config::Config& config_;
  const monitor::RunDirectory& run_;
  Reporter& reporter_;
  const StopRequest& stop_;

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
  double epoch_ = 0;
  SteadyTime train_begin_;   // moved on by the time spent evaluating
  SteadyTime window_begin_;  // of the steps since the last report; likewise
  double window_waited_ = 0;
};

}  // namespace

Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop) {
  return Training(config, run, reporter, stop).run();
}

}  // namespace lockstep::train
