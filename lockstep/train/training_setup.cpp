// Puts a run together, anew or from a checkpoint.
#include "lockstep/base/log.h"
#include "lockstep/data/open.h"
#include "lockstep/hf/base_digest.h"
#include "lockstep/memory/find_micro.h"
#include "lockstep/train/detail/training.h"
#include "lockstep/train/ending.h"
#include "lockstep/train/gradient_order.h"
#include "lockstep/train/try_step.h"

namespace lockstep::train {

using run::Phase;

Training::Training(const config::Config& config, const RunParts& parts, Shared& shared)
    : config_(config),
      run_(parts.run),
      reporter_(parts.reporter),
      world_(parts.world),
      stream_(world_.data().device(), may_capture(config)),
      building_(std::in_place, stream_),
      shared_(shared),
      stop_({.max_time = config.train.max_time,
             .divergence = config.early_stop.divergence},
            StopSources({.signals = parts.stop,
                         .file = run_.path() / "stop",
                         .job_end = shared.hooks.job_end,
                         .is_first = world_.rank() == 0})),
      train_data_(*shared.train_data),
      length_(config::run_length(config, train_data_.size())),
      last_step_(length_.last_step),
      built_(build(config, world_, shared)),
      kernel_choices_(*built_.model, {.run = run_.path() / "kernels.txt",
                                      .machine = kernel_choices_file()}),
      schedule_(config.optim, with_goal(config.schedule, built_.task->primary()),
                length_),
      checkpoints_({config.checkpoint, run_, world_, reporter_, parts.stop,
                    shared.hooks.restarts}),
      strategy_(parallel::make_strategy(
          {config, *built_.model, world_, order(), built_.fill})),
      callbacks_({shared.hooks.callbacks, config, *built_.model, *strategy_, world_,
                  state_, [this] { checkpoints_.fence(); }}),
      profiler_(config.profile, built_.policy.device, strategy_->exchange()),
      step_({.model = built_.model,
             .task = built_.task,
             .strategy = *strategy_,
             .policy = built_.policy,
             .spec = train_data_.spec(),
             .micro_batch = largest_micro_batch(config, world_, train_data_.size()),
             .pass = models::draw_by_sample(*built_.model, config.run.seed),
             .data = &world_.data(),
             .offload = make_offload(config.memory, *strategy_, world_.data().device()),
             .observe = observer()}),
      loader_(train_data_, loader_options()),
      feed_(loader_, built_.policy.device,
            data::wanted_by(built_.model->inputs(), built_.task->fields())),
      progress_({config.watch, config.parallel, world_, reporter_, loader_}),
      tally_(built_.task, built_.policy.device),
      updates_({config.train, config.precision, *strategy_, tally_, reporter_, state_}),
      evaluator_({Evaluator::knobs_of(config, world_), built_, *shared.eval_data,
                  world_, *strategy_, reporter_, schedule_, callbacks_, shared, state_,
                  last_step_, [this] { return stop_ballot(); }}),
      weights_({config.model, config.lora, run_, *built_.model, *strategy_, world_,
                reporter_, callbacks_, state_}) {
  result_.primary = built_.task->primary().name;
  state_.base_weights = digest_of_base(config);
  check_same_data(world_, shared);
  seed_apart(world_, config.run.seed, shared);
  if (!checkpoints_.resumed()) give_unrounded(built_, *strategy_);
  restore();
  if (over_.empty()) set_up(shared);
  building_.reset();
}

// A run that resumes has the buckets that it had. Alone nothing travels.
std::vector<std::string> Training::order() const {
  if (checkpoints_.resumed()) return checkpoints_.resumed()->order;
  return world_.size() > 1 ? gradient_order(config_, shared_)
                           : std::vector<std::string>{};
}

void Training::set_up(Shared& shared) {
  if (config_.memory.find_micro.value() && !checkpoints_.resumed()) {
    find_micro(shared);
  }
  graph_.emplace(StepGraph::Parts{.train = config_.train,
                                  .offloads = config_.memory.offload.value(),
                                  .model = *built_.model,
                                  .step = step_,
                                  .strategy = *strategy_,
                                  .tally = tally_,
                                  .scaler = updates_.scaler(),
                                  .world = world_,
                                  .spec = train_data_.spec(),
                                  .watched_by = who_watches(),
                                  .before_capture = [this] { beat(Phase::warming_up); },
                                  .may_change = !callbacks_.empty()});
  attempts_.emplace(Attempts::Parts{config_.memory, config_.train.anomaly,
                                    *built_.model, *strategy_, step_, tally_, world_,
                                    reporter_, profiler_, *graph_});
  if (const auto& trace = shared.hooks.trace) {
    trace_.emplace(*trace, profile::Trace::Subject{*built_.model, train_data_, world_,
                                                   *strategy_});
  }
  log_start({config_, shared_, built_, *strategy_, last_step_,
             seconds_between(begin_, clock_.now())});
}

std::string Training::who_watches() const {
  if (shared_.hooks.trace) return "it is being traced (--trace)";
  return callbacks_.watch_passes()
             ? "a callback watches its passes (Callback::watches_passes)"
             : "";
}

data::LoaderOptions Training::loader_options() const {
  auto options = data::train_options(config_, {world_.rank(), world_.size()});
  if (checkpoints_.resumed()) options.start = checkpoints_.resumed()->position;
  return options;
}

std::function<void(profile::PassEvent)> Training::observer() {
  return [this, watched = callbacks_.watch_passes()](profile::PassEvent pass) {
    profiler_.passed(pass);
    if (watched) callbacks_.call([&](auto& c, auto& at) { c.on_pass(at, pass); });
  };
}

void Training::restore() {
  const auto& at = checkpoints_.resumed();
  rank_state_.refresh(tally_, built_.policy.device);
  if (!at) return;
  hf::check_base("model.weights: ", {at->base_weights, state_.base_weights},
                 config_.model.weights);
  if (checkpoints_.had_ended()) {
    over_ = why_over(*at, {config_.early_stop, result_.primary}, last_step_);
  }
  checkpoints_.load(*strategy_, rank_state_.pieces());
  rank_state_.apply(tally_, built_.policy.device);
  const auto base_weights = state_.base_weights;
  state_ = *at;
  state_.base_weights = base_weights;  // that of an older checkpoint is not known
  result_.resumed_at = at->steps;
  earlier_seconds_ = at->train_seconds;
  evaluator_.restore(*at);
  stop_.restore(*at);
  updates_.scaler().load(tensors_of(at->scaler));
  schedule_.load(tensors_of(at->schedule));
  // A plateau follows the primary metric, unless it is told to follow the loss.
  const bool is_other = !at->primary.empty() && at->primary != result_.primary;
  if (is_other && config_.schedule.goal != config::Goal::min) {
    schedule_.forget_observed();
  }
  if (at->micro_batch > 0 && at->micro_batch < step_.micro_batch()) {
    step_.set_micro_batch(at->micro_batch);
  }
  built_.model->recompute_every(static_cast<int>(at->recompute_every));
  copy_to_result();
  const auto changed = about_schedule(*at, {config_.optim, config_.schedule}, length_);
  if (over_.empty() && !changed.empty() && world_.rank() == 0) {
    log::warning("train", changed);
  }
}

void Training::find_micro(Shared& shared) {
  const StepTrial trial{*strategy_, step_, built_.task, world_, train_data_.spec()};
  const auto found = memory::find_micro_batch(
      {.config = config_.memory,
       .model = *built_.model,
       .world = world_,
       .limit = shared.limit ? &*shared.limit : nullptr,
       .most = step_.micro_batch(),
       .try_step = [&](std::int64_t size) { return try_step(trial, size); }});
  step_.set_micro_batch(found.size);
  reporter_.micro_batch(found.size, found.text);
}

}  // namespace lockstep::train
