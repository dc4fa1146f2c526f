// The training loop. Read train() from top to bottom: it is the whole story.
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

// Whether the model is evaluated after this step (the last step always is).
bool evaluates_after(const config::Config& config, std::int64_t step, bool ends_epoch) {
  const auto every = config.eval.every.value();
  if (every == config::kEachEpoch) return ends_epoch;
  return every > 0 && step % every == 0;
}

void check_finite(const TrainReport& report, const optim::FlatParameters& parameters) {
  if (std::isfinite(report.means.loss)) return;
  const auto culprit = parameters.first_non_finite_gradient();
  throw Error(
      Fault::config, "train: the loss is ", report.means.loss, " by step ", report.step,
      " (rank 0", culprit.empty() ? "" : ", first bad gradient: " + culprit,
      "); lower optim.lr (now ", report.lr, ") or lengthen schedule.warmup_steps");
}

}  // namespace

Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop) {
  const auto& clock = Clock::system();
  const auto begin = clock.now();
  const auto device = choose_device(config.parallel);
  set_up_process(config, device);
  const precision::Policy policy{config.precision.mode, device};

  const auto train_data = data::open(config.data, data::Split::train);
  const auto eval_data = data::open(config.data, data::Split::eval);
  const auto& spec = train_data->spec();

  const auto model = models::build(config.model, {spec.shape, spec.num_classes});
  model->to(device);
  use_layout(*model);
  reporter.model(*model);

  optim::FlatParameters parameters(*model);
  const auto optimizer = optim::make_optimizer(config.optim, parameters.values());
  Step step({.model = model,
             .parameters = parameters,
             .optimizer = *optimizer,
             .policy = policy,
             .spec = spec,
             .micro_batch = config.batch.micro.value()});
  data::Loader loader(*train_data, loader_options(config));
  Tally tally(device);

  const auto last_step = total_steps(config, train_data->size());
  Result result;
  double eval_seconds = 0;
  double epoch = 0;
  const auto evaluate_now = [&] {
    reporter.beat(result.steps, Phase::evaluating);
    const auto eval_begin = clock.now();
    const auto means = evaluate(*model, *eval_data, config, policy, stop);
    const auto seconds = seconds_between(eval_begin, clock.now());
    eval_seconds += seconds;
    if (!means) return;
    result.eval = means;
    result.best_accuracy = std::max(result.best_accuracy, means->accuracy);
    reporter.eval({result.steps, epoch, *means, seconds});
  };

  reporter.started(last_step);
  const auto train_begin = clock.now();
  auto window_begin = train_begin;
  double window_waited = 0;
  while (result.steps < last_step && stop.signal() == 0 && !result.out_of_time) {
    const auto* batch = loader.next();
    const double lr =
        config.optim.lr * optim::lr_factor(config.schedule, result.steps, last_step);
    step.run(*batch, lr, tally);
    result.steps += 1;
    result.samples += batch->size;
    epoch = static_cast<double>(batch->begin.epoch) +
            static_cast<double>(batch->begin.consumed + batch->size) /
                static_cast<double>(train_data->size());
    reporter.beat(result.steps, Phase::training);

    const auto now = clock.now();
    const bool ends = result.steps == last_step;
    if (ends || result.steps == 1 || result.steps % config.train.log_every == 0) {
      const auto means = tally.means();
      const auto read = clock.now();  // the device has caught up
      const TrainReport report{
          .step = result.steps,
          .total_steps = last_step,
          .epoch = epoch,
          .means = means,
          .lr = lr,
          .samples_per_second = static_cast<double>(means.count) /
                                std::max(seconds_between(window_begin, read), 1e-9),
          .data_wait_seconds = loader.waited_seconds() - window_waited,
          .memory_bytes = memory_in_use_bytes(device)};
      check_finite(report, parameters);
      reporter.train(report);
      result.train_loss = means.loss;
      result.memory_bytes = std::max(result.memory_bytes, report.memory_bytes);
      tally.reset();
      window_begin = read;
      window_waited = loader.waited_seconds();
    }
    if (!ends && evaluates_after(config, result.steps, batch->ends_epoch)) {
      const auto pause = clock.now();
      evaluate_now();
      window_begin += clock.now() - pause;  // evaluating is not training time
    }
    const auto limit = config.train.max_time;
    result.out_of_time = limit.count() > 0 && now - begin >= limit && !ends;
  }
  result.train_seconds = seconds_between(train_begin, clock.now()) - eval_seconds;
  result.stopped_by = stop.signal();

  if (result.stopped_by == 0) evaluate_now();
  if (config.checkpoint.final_weights && result.stopped_by == 0) {
    reporter.beat(result.steps, Phase::saving);
    const auto file = run.path() / "model.safetensors";
    checkpoint::write_safetensors(file, checkpoint::state_of(*model));
    result.weights = file.string();
  }
  result.stopped_by = stop.signal();
  result.seconds = seconds_between(begin, clock.now());
  reporter.finished(result);
  return result;
}

}  // namespace lockstep::train
