// Measures, evaluates and saves after the steps of a run.
#include <cstring>

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/process.h"
#include "lockstep/config/decisions.h"
#include "lockstep/run/exit_status.h"
#include "lockstep/train/detail/training.h"
#include "lockstep/train/finite.h"

namespace lockstep::train {

using run::Phase;

void Training::report(double lr) {
  settle(/*all=*/true);  // the sums are those of steps whose end is known
  if (!is_regular_report()) rank_state_.hold_sums(tally_);
  const auto& norm = updates_.norm();
  const auto report = progress_.report(
      {.step = state_.steps,
       .total_steps = last_step_,
       .epoch = state_.epoch,
       .lr = lr,
       .gradient_norm =
           norm.defined() ? std::optional(norm.item<double>()) : std::nullopt,
       .targets_per_sample = train_data_.spec().num_targets(),
       .targets_are_tokens = train_data_.spec().is_tokens(),
       .passes = profiler_.take_passes(),
       .memory = memory_of(built_.policy.device, shared_)},
      tally_);
  if (report.means.count > 0) {
    check_finite(
        {report.means.loss, state_.steps, lr, world_.size() == 1 ? 0 : kSomeRank},
        *strategy_);
    result_.train_loss = report.means.loss;
  }
  add_to_result(report);
  if (is_regular_report()) stop_.on_report(report.means.loss);
  callbacks_.call([&](auto& c, auto& at) { c.on_report(at, report); });
}

void Training::add_to_result(const TrainReport& report) {
  const auto steps = static_cast<double>(report.steps);
  result_.backend = report.backend;
  result_.is_modelled = report.is_modelled;
  result_.forward_seconds += report.forward_seconds() * steps;
  result_.backward_seconds += report.backward_seconds() * steps;
  result_.memory.clear();
  for (const auto& rank : report.ranks) result_.memory.push_back(rank.memory);
}

void Training::copy_to_result() {
  result_.steps = state_.steps;
  result_.samples = state_.samples;
  result_.skipped = state_.skipped;
  result_.best = state_.best_primary;
  result_.ended_early = stop_.ended_early();
  result_.stopped_by = stop_.stopped_by();
  result_.out_of_time = stop_.out_of_time();
}

void Training::skip_since(SteadyTime begin) {
  const auto took = clock_.now() - begin;
  progress_.skip(took);
  train_begin_ += took;
}

void Training::check_evaluation() {
  const auto begin = clock_.now();
  const auto seen = evaluator_.check();
  if (!seen) return stop_.on_ballots(world_.votes().count());
  skip_since(begin);
}

void Training::evaluate() {
  settle(/*all=*/true);
  const auto begin = clock_.now();
  checkpoints_.fence();  // the average may come into the place of the weights
  const auto seen = evaluator_.evaluate([this] {
    if (config_.checkpoint.save_best) weights_.write("best.safetensors");
  });
  skip_since(begin);
  if (!seen) {
    stop_.on_ballots(world_.votes().count());
  } else if (evaluator_.gives_up() && !seen->is_repeated && !stop_.is_leaving() &&
             state_.steps < last_step_) {
    stop_.end_early(evaluator_.because());
  }
  copy_to_result();
  // Not there: it is done in every step, and these numbers have names.
  result_.eval = evaluator_.last();
  result_.eval_is_of_average = result_.eval && evaluator_.is_of_average();
}

task::Means Training::validate() {
  const kernels::OwnStream::Scope on_stream(stream_);
  // An evaluation that was due has been done: early_stop must not count a second one.
  if (evaluator_.is_done() && result_.eval) return *result_.eval;
  if (!over_.empty()) return evaluator_.look(0).value_or(task::Means{});
  evaluate();
  return result_.eval.value_or(task::Means{});
}

// Half a step is no part of a checkpoint: gradients of some micro-batches, generators
// and running statistics that are ahead of the weights.
std::string Training::save() {
  if (in_step_) {
    throw Error(
        Fault::config, "checkpoint: a save in the middle of step ", state_.steps + 1,
        ", whose micro-batches are not all summed; save in on_step_end() or "
        "between steps, or raise(SIGUSR2), which saves when the step has ended");
  }
  const kernels::OwnStream::Scope on_stream(stream_);
  checkpoints_.finish();
  if (checkpoints_.last_step() != state_.steps) save_checkpoint();
  checkpoints_.finish();
  const auto saved = checkpoints_.last();
  return saved.empty() ? checkpoints_.resumed_from().string() : saved;
}

void Training::save_checkpoint() {
  settle(/*all=*/true);
  beat(Phase::saving);
  rank_state_.refresh(tally_, built_.policy.device);
  std::optional<storage::WatchedMetric> metric;
  if (evaluator_.is_done()) metric = evaluator_.watched();
  checkpoints_.save(*strategy_, {before_end_ ? *before_end_ : run_state(), metric,
                                 rank_state_.pieces()});
}

RunState Training::run_state() const {
  auto now = state_;
  now.train_seconds = earlier_seconds_ + seconds_between(train_begin_, clock_.now());
  evaluator_.save(now);
  stop_.save(now);
  now.scaler = numbers_of(updates_.scaler().state());
  now.schedule = numbers_of(schedule_.state());
  now.micro_batch = step_.micro_batch();
  now.recompute_every = built_.model->recompute_every();
  now.last_step = last_step_;
  now.order = strategy_->state().order();
  now.unused_steps = strategy_->state().unused_steps();
  return now;
}

void Training::save_last() {
  if (checkpoints_.wants_last(state_.steps, is_cut_short())) {
    checkpoints_.finish();  // whatever on_busy says: this is the last
    save_checkpoint();
  }
  checkpoints_.finish();
  result_.checkpoint = checkpoints_.last();
}

bool Training::is_cut_short() const {
  return result_.stopped_by != 0 ||
         (state_.steps < last_step_ && result_.ended_early.empty());
}

void Training::save_final() {
  checkpoints_.fence();
  weights_.write_final(result_);
}

Result Training::end() {
  settle(/*all=*/true);
  copy_to_result();
  result_.earlier_train_seconds = earlier_seconds_;
  result_.train_seconds =
      earlier_seconds_ + seconds_between(train_begin_, clock_.now());
  if (const int signal = result_.stopped_by) {
    log::warning("train", fmt::format("stopped by {} after step {}",
                                      process::signal_name(signal), state_.steps));
  }
  const bool cut = result_.stopped_by != 0 || result_.out_of_time;
  if (cut) save_last();
  const bool saves = config_.checkpoint.final_weights && state_.steps > 0;
  if (saves) save_final();
  result_.split = profile::save_profile(profiler_, world_, run_);
  const bool evaluated = evaluator_.is_done();
  if (!evaluated && !evaluator_.is_regular()) before_end_ = run_state();
  if (result_.stopped_by == 0 && !evaluated) evaluate();
  if (!cut) save_last();
  if (config_.checkpoint.load_best && result_.stopped_by == 0 &&
      checkpoints_.load_best(*strategy_, state_.steps)) {
    if (saves) save_final();
    evaluate();
  }
  if (const int signal = result_.stopped_by) {
    result_.exit = run::exit_of_stop(run_, config::resumes(config_.checkpoint), signal);
  }
  result_.seconds = seconds_between(begin_, clock_.now());
  callbacks_.call([this](auto& c, auto& at) { c.on_train_end(at, result_); });
  reporter_.finished(result_);
  return result_;
}

Result Training::leave_as_it_is() {
  result_.already_over = over_;
  result_.ended_early = checkpoints_.resumed()->ended_early;
  result_.train_seconds = earlier_seconds_;
  result_.earlier_train_seconds = earlier_seconds_;
  result_.seconds = seconds_between(begin_, clock_.now());
  result_.checkpoint = checkpoints_.resumed_from().string();
  reporter_.finished(result_);
  return result_;
}

}  // namespace lockstep::train
