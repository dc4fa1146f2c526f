// The training loop: read Training::run() and Training::step().
#include "lockstep/train/trainer.h"

#include <cmath>

#include <fmt/format.h>

#include "lockstep/base/log.h"
#include "lockstep/memory/out_of_memory.h"
#include "lockstep/run/class_names.h"
#include "lockstep/train/detail/training.h"
#include "lockstep/train/finite.h"

namespace lockstep::train {

using monitor::StepPhase;
using run::Phase;

Result Training::run() {
  begin();
  owns_loop_ = true;
  while (!is_over()) step();
  strategy_->settle();
  return finish();
}

void Training::begin() {
  if (!over_.empty()) return;
  const kernels::OwnStream::Scope on_stream(stream_);
  checkpoints_.begin();
  reporter_.model(*built_.model);
  reporter_.primary(built_.task->primary());
  reporter_.started(last_step_, world_.size());
  if (world_.rank() == 0) {
    run::write_class_names(run_, train_data_.spec().class_names);
  }
  if (result_.resumed_at) {
    reporter_.resumed(*result_.resumed_at, checkpoints_.resumed_from().string());
  }
  train_begin_ = clock_.now();
  progress_.start(train_begin_);
  callbacks_.call([](auto& c, auto& at) { c.on_train_begin(at); });
  agree();  // a user may have asked to stop before the first step
  if (config_.eval.sanity_batches > 0 && !stop_.is_leaving()) check_evaluation();
  if (state_.steps == 0) evaluator_.show_prompts();
  if (owes_evaluation()) evaluate();
}

bool Training::is_over() const {
  return !over_.empty() || state_.steps >= last_step_ || stop_.is_leaving();
}

bool Training::step() {
  const kernels::OwnStream::Scope on_stream(stream_);
  const auto step_begin = clock_.now();
  settle(/*all=*/false);
  beat(Phase::loading);
  profiler_.begin_step(state_.steps + 1);
  const auto& batch = *feed_.next();
  profiler_.end_phase(StepPhase::data);
  begin_step(batch);
  const double lr = schedule_.lr(state_.steps, batch.begin.epoch);
  const bool reports = is_due(config_.train.log_every, state_.steps + 1);
  kernel_choices_.agree({batch.global_size, batch.largest_size, step_.micro_batch(),
                         train_data_.spec().shape, step_.passes_match()},
                        world_);
  in_step_ = true;  // an exception ends the run
  const bool held = compute(batch);
  checkpoints_.make_way(state_.steps + 1);
  checkpoints_.fence();
  if (held) {
    updates_.update_held({lr, reports}, *graph_, callbacks_.watch_skips());
  } else {
    // A callback, and a program that makes the steps itself, may look at parameters.
    const bool unseen = owns_loop_ && callbacks_.empty() && !trace_;
    updates_.update({lr, reports, unseen});
  }
  in_step_ = false;
  profiler_.end_phase(StepPhase::optimizer);
  if (trace_) trace_->updated(batch, lr, tally_);
  progress_.step(batch, held ? nullptr : exchange_times());
  account(batch, lr);
  // The first step of a process is no measure of the others.
  if (made_steps_++ > 0) step_seconds_ = seconds_between(step_begin, clock_.now());
  profiler_.end_step(batch.size);
  check_agreed_finite(lr);
  if (reports || state_.steps == 1) report(lr);
  end_step(batch.ends_epoch);
  return batch.ends_epoch;
}

Result Training::finish() {
  const kernels::OwnStream::Scope on_stream(stream_);
  return over_.empty() ? end() : leave_as_it_is();
}

void Training::begin_step(const data::Batch& batch) {
  if (batch.begin.consumed == 0) {
    callbacks_.call([](auto& c, auto& at) { c.on_epoch_begin(at); });
  }
  callbacks_.call([&](auto& c, auto& at) { c.on_step_begin(at, batch); });
}

bool Training::compute(const data::Batch& batch) {
  const bool held = attempts_->is_held(batch, state_.steps);
  if (!held) settle(/*all=*/true);
  const auto own = [this] { return ballot(); };
  const Attempts::NextStep next{.steps = state_.steps,
                                .loss_scale = updates_.scaler().scale()};
  on_ballots(held ? attempts_->replay(batch, state_.steps, own)
                  : attempts_->compute(batch, next, own));
  if (trace_) trace_->exchanged();
  callbacks_.call([](auto& c, auto& at) { c.on_gradients(at); });
  profiler_.skip_phase();
  return held;
}

comm::Ballot Training::stop_ballot() {
  stop_.leave_room(checkpoints_.longest() + step_seconds_);
  return stop_.asked();
}

comm::Ballot Training::ballot() {
  auto own = stop_ballot();
  if (stop_.is_out_of_time()) own.flags |= comm::kOutOfTime;
  // Reading the loss would wait for a GPU: report() reads it there.
  const bool stops = config_.train.on_nonfinite == config::OnNonfinite::stop;
  if (stops && built_.policy.device.is_cpu() && !std::isfinite(tally_.loss())) {
    own.flags |= comm::kNonFinite;
  }
  if (callbacks_.should_stop()) own.flags |= comm::kEnough;
  own.flags |= checkpoints_.flags();
  // The weights of the next batch travel with a ballot that is sent anyway.
  const auto* next = feed_.upcoming();
  if (const auto weights = next ? step_.weights_of(*next) : std::nullopt) {
    own.flags |= comm::kWeighed;
    own.weights = *weights;
  }
  return own;
}

void Training::agree() {
  world_.votes().cast(ballot());
  on_ballots(world_.votes().count());
}

void Training::on_ballots(const std::vector<comm::Ballot>& ballots) {
  ballots_ = ballots;
  stop_.on_ballots(ballots_);
  checkpoints_.on_ballots(ballots_);
}

void Training::check_agreed_finite(double lr) {
  for (std::size_t rank = 0; rank < ballots_.size(); ++rank) {
    if ((ballots_[rank].flags & comm::kNonFinite) == 0) continue;
    // Only the rank itself knows the value of its loss; the others know that it is bad.
    const auto loss = tally_.means().loss;
    check_finite({std::isfinite(loss) ? std::nan("") : loss, state_.steps, lr,
                  static_cast<int>(rank)},
                 *strategy_);
  }
}

void Training::account(const data::Batch& batch, double lr) {
  state_.steps += 1;
  state_.samples += batch.global_size;
  const auto consumed = batch.begin.consumed + batch.global_size;
  state_.position = {batch.begin.epoch, consumed};
  if (batch.ends_epoch) state_.position = {batch.begin.epoch + 1, 0};
  state_.epoch =
      static_cast<double>(batch.begin.epoch) +
      static_cast<double>(consumed) / static_cast<double>(loader_.samples_per_epoch());
  reporter_.step(state_.steps);
  callbacks_.call([&](auto& c, auto& at) {
    c.on_step_end(at, {lr, state_.skipped_in_a_row > 0});
  });
  const auto every = config_.memory.empty_cache_every;
  if (every > 0 && state_.steps % every == 0) {
    memory::empty_cache(built_.policy.device);
  }
  copy_to_result();
  // It is logged on request only: a line a step makes a log without bound.
  if (config_.monitor.verbosity != config::Verbosity::debug) return;
  log::debug("train", fmt::format("step {}: {} samples, epoch {:.3f}", state_.steps,
                                  batch.size, state_.epoch));
}

void Training::end_step(bool ends_epoch) {
  const auto goes_on = [this] {
    return state_.steps < last_step_ && !stop_.is_leaving();
  };
  if (goes_on() && evaluator_.is_due(ends_epoch)) evaluate();
  if (ends_epoch) callbacks_.call([](auto& c, auto& at) { c.on_epoch_end(at); });
  if (goes_on() && checkpoints_.is_due(state_.steps)) save_checkpoint();
}

bool Training::is_due(std::int64_t every, std::int64_t step) const {
  return step == last_step_ || (every > 0 && step % every == 0);
}

bool Training::is_regular_report() const {
  return state_.steps == 1 || state_.steps % config_.train.log_every == 0;
}

bool Training::owes_evaluation() const {
  return state_.steps > 0 && state_.steps < last_step_ && !stop_.is_leaving() &&
         !evaluator_.is_done() && evaluator_.is_due(state_.position.consumed == 0);
}

Result train(const config::Resolved& config, const RunParts& parts,
             const RunHooks& hooks) {
  const auto shared = open_shared(*config, hooks);
  return train(config, parts, *shared);
}

Result train(const config::Resolved& config, const RunParts& parts, Shared& shared) {
  return Training(*config, parts, shared).run();
}

std::unique_ptr<Loop> make_loop(const config::Resolved& config, const RunParts& parts,
                                Shared& shared) {
  return std::make_unique<Training>(*config, parts, shared);
}

}  // namespace lockstep::train
