#include "lockstep/train/evaluator.h"

#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/log.h"
#include "lockstep/base/memory.h"
#include "lockstep/data/open.h"
#include "lockstep/train/ending.h"

namespace lockstep::train {
namespace {

bool is_better(double value, double than, task::Better better) {
  return better == task::Better::more ? value > than : value < than;
}

// Lets go of what was freed before it and in it, on the host.
class HeapOfItsOwn {
 public:
  explicit HeapOfItsOwn(const torch::Device& device) : on_host_(device.is_cpu()) {
    if (on_host_) give_back_freed_memory();
  }
  ~HeapOfItsOwn() {
    if (on_host_) give_back_freed_memory();
  }
  HeapOfItsOwn(const HeapOfItsOwn&) = delete;
  HeapOfItsOwn& operator=(const HeapOfItsOwn&) = delete;

 private:
  const bool on_host_;
};

}  // namespace

Evaluator::Knobs Evaluator::knobs_of(const config::Config& config,
                                     const comm::World& world) {
  return {.eval = config.eval,
          .early_stop = config.early_stop,
          .schedule = config.schedule,
          .prompts = {config.eval, config.model, config.data},
          .loader = data::eval_options(config, {world.rank(), world.size()}),
          .batch = config.batch.eval.value(),
          .limit_batches = config.train.fast_dev_run,
          .retries = config.memory.on_out_of_memory == config::OnOutOfMemory::retry,
          .of_average = config.ema.evaluate};
}

Evaluator::Evaluator(const Parts& parts)
    : parts_(parts),
      early_stop_(parts.knobs.early_stop, parts.built.task->primary()),
      prompts_(parts.knobs.prompts, *parts.built.model, parts.reporter) {}

bool Evaluator::is_due(bool ends_epoch) const {
  const auto every = parts_.knobs.eval.every.value();
  if (every == config::kEachEpoch) return ends_epoch;
  const auto step = parts_.state.steps;
  return step == parts_.last_step || (every > 0 && step % every == 0);
}

bool Evaluator::is_regular() const {
  const auto every = parts_.knobs.eval.every.value();
  return every == config::kEachEpoch ? parts_.state.position.consumed == 0
                                     : every > 0 && parts_.state.steps % every == 0;
}

bool Evaluator::is_of_average() const {
  return parts_.strategy.average() != nullptr && parts_.knobs.of_average;
}

std::optional<task::Means> Evaluator::look(std::int64_t limit_batches) {
  const auto step = parts_.state.steps;
  const auto beat = [this, step](run::Phase phase) {
    parts_.reporter.beat(step, phase);
  };
  beat(run::Phase::evaluating);
  parts_.strategy.share_buffers();
  // Its batches have another size than a step's: a process that keeps the memory of
  // both grows to their sum.
  const HeapOfItsOwn heap(parts_.built.policy.device);
  return train::evaluate(*parts_.built.model, parts_.data,
                         {.loader = parts_.knobs.loader,
                          .batch = parts_.knobs.batch,
                          .retries = parts_.knobs.retries,
                          .policy = parts_.built.policy,
                          .world = parts_.world,
                          .task = *parts_.built.task,
                          .step = step,
                          .ballot = parts_.ballot,
                          .beat = beat,
                          .shapes = &shapes_,
                          .strategy = &parts_.strategy,
                          .limit_batches = limit_batches});
}

std::optional<task::Means> Evaluator::check() {
  auto seen = look(parts_.knobs.eval.sanity_batches);
  if (!seen) return seen;
  // Throws now if the watched metric is none of an evaluation's.
  EarlyStop(parts_.knobs.early_stop, parts_.built.task->primary()).observe(*seen);
  log::info("train", fmt::format("sanity check of the evaluation: loss {:.4f} before "
                                 "the first step, over {} samples",
                                 seen->loss, seen->count));
  return seen;
}

std::optional<Evaluation> Evaluator::evaluate(const std::function<void()>& on_best) {
  const auto& clock = Clock::system();
  const auto begin = clock.now();
  parts_.callbacks.call([](auto& c, auto& at) { c.on_eval_begin(at); });
  const bool average = is_of_average();
  if (average) parts_.strategy.average()->use(true);
  auto means = look(parts_.knobs.limit_batches);
  // A second look at the same step, as after load_best, is no second evaluation.
  std::optional<Evaluation> seen;
  if (means) seen = {std::move(*means), false, is_done()};
  if (seen) {
    seen->is_best = !seen->is_repeated && early_stop_.observe(seen->means);
    watched_ = early_stop_.watched(seen->means);
    if (seen->is_best) on_best();
  }
  if (seen && !seen->is_repeated) show_prompts();
  if (average) parts_.strategy.average()->use(false);
  if (seen) conclude(*seen, seconds_between(begin, clock.now()));
  return seen;
}

void Evaluator::show_prompts() {
  if (!prompts_.are_there()) return;
  prompts_.show(parts_.state.steps, {parts_.world, parts_.strategy});
}

// All ranks have the same numbers, so all come to the same decision.
void Evaluator::conclude(const Evaluation& seen, double seconds) {
  auto& state = parts_.state;
  const auto primary = parts_.built.task->primary();
  const auto value = seen.means.find(primary.name);
  if (parts_.schedule.observes() && !seen.is_repeated) {
    parts_.schedule.observe(plateau_value(seen.means));
  }
  if (value && std::isfinite(*value) &&
      (!state.best_primary || is_better(*value, *state.best_primary, primary.better))) {
    state.best_primary = value;
  }
  last_ = seen.means;
  state.evaluated_at = state.steps;
  const auto memory = memory_of(parts_.built.policy.device, parts_.shared);
  const EvalReport report{state.steps, state.epoch,  seen.means,
                          seconds,     seen.is_best, memory.peak_bytes};
  parts_.reporter.eval(report);
  parts_.callbacks.call([&](auto& c, auto& at) { c.on_eval_end(at, report); });
}

// Returns the value that schedule.goal names: the loss, or the task's primary metric.
double Evaluator::plateau_value(const task::Means& seen) const {
  const auto primary = parts_.built.task->primary();
  const bool loss = parts_.knobs.schedule.goal == config::Goal::min;
  return loss ? seen.loss : seen.find(primary.name).value_or(seen.loss);
}

void Evaluator::save(RunState& state) const {
  state.best = early_stop_.best();
  state.waited = early_stop_.waited();
  state.early_stop = early_stop_knobs(parts_.knobs.early_stop);
  state.primary = parts_.built.task->primary().name;
}

void Evaluator::restore(const RunState& at) {
  const auto primary = parts_.built.task->primary().name;
  const bool is_other = !at.primary.empty() && at.primary != primary;
  if (is_other) parts_.state.best_primary.reset();
  if (!watched_the_same(at, {parts_.knobs.early_stop, primary})) return;
  // A run that had ended early is extended: patience starts over.
  early_stop_.restore(at.best, at.ended_early.empty() ? at.waited : 0);
}

}  // namespace lockstep::train
