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
#include "lockstep/data/device_feed.h"
#include "lockstep/data/loader.h"
#include "lockstep/data/open.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/schedule.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/loss_scaler.h"
#include "lockstep/train/attempts.h"
#include "lockstep/train/build.h"
#include "lockstep/train/checkpoints.h"
#include "lockstep/train/early_stop.h"
#include "lockstep/train/ending.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/find_micro.h"
#include "lockstep/train/out_of_memory.h"
#include "lockstep/train/own_state.h"
#include "lockstep/train/own_stream.h"
#include "lockstep/train/profiler.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/step.h"
#include "lockstep/train/step_graph.h"
#include "lockstep/train/stop_sources.h"
#include "lockstep/train/trace.h"

namespace lockstep::train {
namespace {

using monitor::Phase;

constexpr int kSomeRank = -1;

// Of a micro-batch: what was named, or planned; all of a rank's share where the largest
// that fits is looked for.
std::int64_t most_at_once(const config::Config& config, const comm::World& world,
                          std::int64_t samples) {
  const auto ranks = static_cast<std::int64_t>(world.size());
  const auto share = (config.batch.global.value() + ranks - 1) / ranks;
  const bool looks = config.memory.find_micro.value();
  return std::min(looks ? share : config.batch.micro.value(), samples);
}

// What a plateau is one of: `auto` follows the task's metric.
config::ScheduleConfig goal_of(config::ScheduleConfig schedule,
                               const task::Primary& primary) {
  if (schedule.goal == config::Goal::automatic) {
    schedule.goal =
        primary.better == task::Better::more ? config::Goal::max : config::Goal::min;
  }
  const bool falls = primary.better == task::Better::less;
  if (schedule.name == config::Schedule::plateau &&
      schedule.goal == config::Goal::max && falls) {
    throw Error(Fault::config, "schedule.goal: max waits for ", primary.name,
                " to rise, but it is better the lower it is: every improvement would "
                "lower the rate; leave it at auto");
  }
  return schedule;
}

// Replicas share autograd's thread, so no graph holds what one of them does.
bool may_capture(const config::Config& config) {
  return config.train.graph != config::Graph::off &&
         config.parallel.strategy != config::Strategy::data_parallel;
}

bool is_better(double value, double than, task::Better better) {
  return better == task::Better::more ? value > than : value < than;
}

// Of what a last checkpoint and the step before it are expected to take, if a limit of
// time is near.
constexpr double kSpareTime = 2;

// One training run. The members are made in this order, from the device to the loader;
// run() is the loop.
class Training : public Loop {
 public:
  Training(const config::Config& config, const monitor::RunDirectory& run,
           Reporter& reporter, const StopRequest& stop, comm::World& world,
           Shared& shared)
      : config_(config),
        run_(run),
        reporter_(reporter),
        world_(world),
        stream_(world.data().device(), may_capture(config)),
        building_(std::in_place, stream_),
        shared_(shared),
        callbacks_(shared.extras.callbacks),
        stop_sources_(stop, run.path() / "stop", shared.extras.job_end,
                      world.rank() == 0),
        train_data_(*shared.train_data),
        eval_data_(*shared.eval_data),
        length_(length_of(config, train_data_.size())),
        last_step_(last_step_of(config, length_)),
        built_(build(config, world.data().device(), shared)),
        schedule_(config.optim, goal_of(config.schedule, built_.task->primary()),
                  length_),
        checkpoints_({config, run, world, reporter, stop, shared.extras.restarts}),
        strategy_(parallel::make_strategy(config, *built_.model, world)),
        profiler_(config.profile, built_.policy.device, *strategy_),
        step_({.model = built_.model,
               .task = built_.task,
               .strategy = *strategy_,
               .policy = built_.policy,
               .spec = train_data_.spec(),
               .micro_batch = most_at_once(config, world, train_data_.size()),
               .pass = models::draw_by_sample(*built_.model, config.run.seed),
               .data = &world.data(),
               .offload = offload_of(config, *strategy_, world.data().device()),
               .observe = observer()}),
        loader_(train_data_, loader_options(config, world)),
        feed_(loader_, built_.policy.device,
              wanted_by(built_.model->inputs(), built_.task->fields())),
        progress_(config, world, reporter, loader_),
        tally_(built_.task, built_.policy.device),
        scaler_(config.precision),
        early_stop_(config.early_stop, built_.task->primary()),
        divergence_(config.early_stop.divergence) {
    result_.primary = built_.task->primary().name;
    check_same_data(world, shared);
    seed_apart(world, config.run.seed, shared);
    go_on();
    if (over_.empty()) set_up(shared);
    building_.reset();
  }

  Result run() {
    begin();
    while (!is_over()) step();
    return finish();
  }

  // What comes before the first step.
  void begin() override {
    if (!over_.empty()) return;
    const OwnStream::Scope on_stream(stream_);
    reporter_.model(*built_.model);
    reporter_.primary(result_.primary);
    reporter_.started(last_step_, world_.size());
    if (result_.resumed_at) {
      reporter_.resumed(*result_.resumed_at, checkpoints_.resumed_from().string());
    }
    train_begin_ = clock_.now();
    progress_.start(train_begin_);
    call([](auto& c, auto& m) { c.on_train_begin(m); });
    agree();  // somebody may have asked to stop before the first step
    if (config_.eval.sanity_batches > 0 && !leaving_) check_evaluation();
    if (owes_evaluation()) evaluate_now();
  }

  // There is no step left.
  bool is_over() const override {
    return !over_.empty() || result_.steps >= last_step_ || leaving_;
  }

  // One step of the optimizer, and what is due after it. Whether an epoch ends with it.
  bool step() override {
    const OwnStream::Scope on_stream(stream_);
    const auto step_begin = clock_.now();
    settle(/*all=*/false);
    beat(Phase::loading);
    profiler_.begin_step(result_.steps + 1);
    const auto& batch = *feed_.next();
    profiler_.did(monitor::StepPhase::data);
    begin_step(batch);
    const double lr = schedule_.lr(result_.steps, batch.begin.epoch);
    const bool held = attempts_->is_held(batch, result_.steps);
    if (!held) settle(/*all=*/true);
    const auto tell = [this] { return ballot(); };
    take(held ? attempts_->replay(batch, result_.steps, tell)
              : attempts_->compute(batch, result_.steps, scaler_.scale(), tell));
    if (trace_) show_gradients();
    call([](auto& c, auto& m) { c.on_gradients(m); });
    profiler_.did_other();
    const bool reports = is_due(config_.train.log_every, result_.steps + 1);
    checkpoints_.make_way(result_.steps + 1);
    checkpoints_.fence();
    if (held) {
      update_held(lr, reports);
    } else {
      update(lr, reports);
    }
    profiler_.did(monitor::StepPhase::optimizer);
    if (trace_) trace_->updated(batch, lr, tally_);
    progress_.step(batch, held ? nullptr : strategy_->times());
    account(batch, lr);
    // The first one of a process is no measure of the others.
    if (made_steps_++ > 0) step_seconds_ = seconds_between(step_begin, clock_.now());
    profiler_.end_step(batch.size);
    check_agreed_finite(lr);
    if (reports || result_.steps == 1) {
      settle(/*all=*/true);  // the sums are those of steps whose end is known
      if (!is_regular_report()) own_.hold_sums(tally_);
      report(lr);
    }
    if (result_.steps < last_step_ && !leaving_ &&
        evaluation_is_due(batch.ends_epoch)) {
      evaluate_now();
    }
    if (batch.ends_epoch) call([](auto& c, auto& m) { c.on_epoch_end(m); });
    // The last one is saved when it has been evaluated.
    if (result_.steps < last_step_ && !leaving_ && checkpoints_.is_due(result_.steps)) {
      save_checkpoint();
    }
    return batch.ends_epoch;
  }

  Result finish() override {
    const OwnStream::Scope on_stream(stream_);
    return over_.empty() ? end() : leave_as_it_is();
  }

  // What somebody wants beside what is due.
  Means validate() override {
    const OwnStream::Scope on_stream(stream_);
    // What was due has been done: a second look is no second evaluation to early_stop.
    if (state_.evaluated_at == result_.steps && result_.eval) return *result_.eval;
    if (!over_.empty()) return evaluate_model(0).value_or(Means{});
    evaluate_now();
    return result_.eval.value_or(Means{});
  }
  std::string save() override {
    const OwnStream::Scope on_stream(stream_);
    checkpoints_.finish();
    if (checkpoints_.last_step() != result_.steps) save_checkpoint();
    checkpoints_.finish();
    const auto saved = checkpoints_.last();
    return saved.empty() ? checkpoints_.resumed_from().string() : saved;
  }
  const Result& result() const override { return result_; }

 private:
  void set_up(Shared& shared) {
    if (config_.memory.find_micro.value() && !checkpoints_.resumed()) {
      find_micro(shared);
    }
    graph_.emplace(
        StepGraph::Parts{.config = config_,
                         .model = *built_.model,
                         .step = step_,
                         .strategy = *strategy_,
                         .tally = tally_,
                         .scaler = scaler_,
                         .world = world_,
                         .spec = train_data_.spec(),
                         .watched_by = who_watches(),
                         .before_capture = [this] { beat(Phase::warming_up); },
                         .may_change = !callbacks_.empty()});
    attempts_.emplace(Attempts::Parts{config_, *built_.model, *strategy_, step_, tally_,
                                      world_, reporter_, profiler_, *graph_});
    if (const auto& trace = shared.extras.trace) {
      trace_.emplace(*trace, *built_.model, train_data_, world_);
    }
    log_start();
  }

  // Who looks inside of steps, as a clause; "" if nobody does.
  std::string who_watches() const {
    if (shared_.extras.trace) return "somebody wants a trace of it";
    for (const auto& callback : callbacks_) {
      if (callback->watches_passes()) {
        return "a callback watches its passes (Callback::watches_passes)";
      }
    }
    return "";
  }

  data::LoaderOptions loader_options(const config::Config& config,
                                     const comm::World& world) const {
    auto options = data::train_options(config, {world.rank(), world.size()});
    if (checkpoints_.resumed()) options.start = checkpoints_.resumed()->position;
    return options;
  }

  // From a checkpoint, if there is one.
  void go_on() {
    const auto& at = checkpoints_.resumed();
    own_.refresh(tally_, built_.policy.device);
    if (!at) return;
    if (checkpoints_.had_ended()) over_ = why_over(*at, config_, last_step_);
    checkpoints_.load(*strategy_, own_.pieces());
    own_.apply(tally_, built_.policy.device);
    state_ = *at;
    result_.steps = at->steps;
    result_.samples = at->samples;
    result_.skipped = at->skipped;
    result_.best = at->best_primary;
    result_.resumed_at = at->steps;
    earlier_seconds_ = at->train_seconds;
    // Somebody wants more of a run that had ended early: patience begins anew.
    if (watched_the_same(*at, config_.early_stop)) {
      early_stop_.restore(at->best, at->ended_early.empty() ? at->waited : 0);
    }
    divergence_.load(at->divergence);
    scaler_.load(tensors_of(at->scaler));
    schedule_.load(tensors_of(at->schedule));
    if (at->micro_batch > 0 && at->micro_batch < step_.micro_batch()) {
      step_.set_micro_batch(at->micro_batch);
    }
    built_.model->recompute_every(static_cast<int>(at->recompute_every));
    const auto changed = about_schedule(*at, config_, length_);
    if (over_.empty() && !changed.empty() && world_.rank() == 0) {
      log::warning("train", changed);
    }
  }

  // Started again after its end: nothing is written, so that all stays as it was.
  Result leave_as_it_is() {
    result_.already_over = over_;
    result_.ended_early = checkpoints_.resumed()->ended_early;
    result_.train_seconds = earlier_seconds_;
    result_.earlier_train_seconds = earlier_seconds_;
    result_.seconds = seconds_between(begin_, clock_.now());
    result_.checkpoint = checkpoints_.resumed_from().string();
    reporter_.finished(result_);
    return result_;
  }

  void find_micro(Shared& shared) {
    const auto found = find_micro_batch({.config = config_,
                                         .model = *built_.model,
                                         .strategy = *strategy_,
                                         .step = step_,
                                         .task = built_.task,
                                         .world = world_,
                                         .spec = train_data_.spec(),
                                         .limit = shared.limit});
    reporter_.micro_batch(step_.micro_batch(), found);
    log::info("train", "batch.micro: " + found);
  }

  template <typename Do>
  void call(const Do& on) {
    if (callbacks_.empty()) return;
    checkpoints_.fence();  // they may change weights
    const Moment moment{config_, *built_.model, *strategy_,
                        world_,  result_.steps, state_.epoch};
    for (const auto& one : callbacks_) on(*one, moment);
  }

  std::function<void(Pass)> observer() {
    const bool watched = std::any_of(callbacks_.begin(), callbacks_.end(),
                                     [](auto& one) { return one->watches_passes(); });
    return [this, watched](Pass pass) {
      profiler_.passed(pass);
      if (watched) call([&](auto& c, auto& m) { c.on_pass(m, pass); });
    };
  }

  void begin_step(const data::Batch& batch) {
    if (batch.begin.consumed == 0) call([](auto& c, auto& m) { c.on_epoch_begin(m); });
    call([&](auto& c, auto& m) { c.on_step_begin(m, batch); });
  }

  void beat(Phase phase) { reporter_.beat(result_.steps, phase); }

  void show_gradients() {
    strategy_->gather_gradients();
    trace_->exchanged();
  }

  void update(double lr, bool wants_norm) {
    const auto done =
        strategy_->update({.lr = lr,
                           .loss_scale = scaler_.scale(),
                           .wants_norm = wants_norm,
                           .skips_nonfinite = skips_nonfinite(config_, scaler_)});
    norm_ = done.norm;
    if (done.skipped) skip();
    if (!done.skipped) state_.skipped_in_a_row = 0;
    scaler_.update(done.skipped);
  }

  void update_held(double lr, bool wants_norm) {
    norm_ = graph_->update(lr, wants_norm, result_.steps);
    const bool told = std::any_of(callbacks_.begin(), callbacks_.end(),
                                  [](const auto& one) { return one->watches_skips(); });
    if (told || !skips_nonfinite(config_, scaler_)) settle(/*all=*/true);
  }

  // What has become of the steps that graphs made: of all but the last, or of all.
  void settle(bool all) {
    if (!graph_) return;
    for (const auto& [step, skipped, targets] : graph_->outcomes(all)) {
      if (skipped) {
        tally_.count() -= targets;
        note_skipped(step);
      } else {
        state_.skipped_in_a_row = 0;
      }
      scaler_.update(skipped);
    }
  }

  // The weights are as before; so are the sums, which a NaN would spoil.
  void skip() {
    tally_.rewind();
    note_skipped(result_.steps + 1);
  }

  void note_skipped(std::int64_t step) {
    result_.skipped += 1;
    state_.skipped_in_a_row += 1;
    reporter_.skipped(step, scaler_.scale());
    const auto most = config_.train.max_skipped;
    if (scaler_.active() || most == 0 || state_.skipped_in_a_row < most) return;
    throw Error(Fault::diverged, "train: gradients were not finite in ", most,
                " steps in a row, up to step ", step,
                " (train.max_skipped); lower optim.lr, or set optim.clip_norm");
  }

  // What a last checkpoint, and the step before it, will take.
  std::chrono::duration<double> room_to_leave() const {
    return std::chrono::duration<double>(kSpareTime *
                                         (checkpoints_.longest() + step_seconds_));
  }

  // Whether somebody wants it to stop.
  comm::Ballot stop_ballot() {
    comm::Ballot own;
    stop_sources_.leave_room(room_to_leave());
    if (const int signal = stop_sources_.asked()) {
      own.flags |= comm::kStop;
      own.value = signal;
    }
    return own;
  }

  // What this rank tells the others of its step.
  comm::Ballot ballot() {
    auto own = stop_ballot();
    const auto limit = config_.train.max_time;
    if (limit.count() > 0 && clock_.now() - begin_ + room_to_leave() >= limit) {
      own.flags |= comm::kOutOfTime;
    }
    // On a GPU looking would wait for it: there report() looks.
    const bool stops = config_.train.on_nonfinite == config::OnNonfinite::stop;
    if (stops && built_.policy.device.is_cpu() && !std::isfinite(tally_.loss())) {
      own.flags |= comm::kNonFinite;
    }
    for (const auto& callback : callbacks_) {
      if (callback->has_seen_enough()) own.flags |= comm::kEnough;
    }
    own.flags |= checkpoints_.tell();
    // What the next batch weighs travels with what is said anyway.
    const auto* next = feed_.upcoming();
    if (const auto weights = next ? step_.weights_of(*next) : std::nullopt) {
      own.flags |= comm::kWeighed;
      own.weights = *weights;
    }
    return own;
  }

  void agree() {
    world_.votes().cast(ballot());
    take(world_.votes().count());
  }

  void take(const std::vector<comm::Ballot>& ballots) {
    ballots_ = ballots;
    const auto flags = comm::Votes::any(ballots_);
    if ((flags & comm::kEnough) != 0) end_early("a callback wanted no more steps");
    note_leaving(ballots_);
    checkpoints_.observe(ballots_);
  }

  void note_leaving(const std::vector<comm::Ballot>& ballots) {
    if ((comm::Votes::any(ballots) & comm::kOutOfTime) != 0) {
      leaving_ = result_.out_of_time = true;
    }
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

  void account(const data::Batch& batch, double lr) {
    result_.steps += 1;
    result_.samples += batch.global_size;
    state_.position = {batch.begin.epoch, batch.begin.consumed + batch.global_size};
    if (batch.ends_epoch) state_.position = {batch.begin.epoch + 1, 0};
    state_.epoch = static_cast<double>(batch.begin.epoch) +
                   static_cast<double>(batch.begin.consumed + batch.global_size) /
                       static_cast<double>(loader_.samples_per_epoch());
    reporter_.step(result_.steps);
    call([&](auto& c, auto& m) {
      c.on_step_end(m, {lr, state_.skipped_in_a_row > 0});
    });
    const auto every = config_.memory.empty_cache_every;
    if (every > 0 && result_.steps % every == 0) empty_cache(built_.policy.device);
    // Asked for only: a line a step is a write a step, and a log without bound.
    if (config_.monitor.verbosity != config::Verbosity::debug) return;
    log::debug("train", fmt::format("step {}: {} samples, epoch {:.3f}", result_.steps,
                                    batch.size, state_.epoch));
  }

  void log_start() const {
    const auto& extras = shared_.extras;
    const auto data = extras.train_data ? "samples of the program" : config_.data.name;
    const auto model =
        extras.build_model ? "a model of the program" : config_.model.name;
    log::info("train", fmt::format("{}, {}, {}, {} threads, seed {}", strategy_->name(),
                                   built_.policy.device.str(),
                                   config::name_of(config_.precision.mode),
                                   config_.parallel.threads.value(), config_.run.seed));
    log::info("data",
              fmt::format("{}: {} training and {} test samples, read in {:.2f} s", data,
                          train_data_.size(), eval_data_.size(),
                          seconds_between(begin_, clock_.now())));
    log::info("train", fmt::format("{}: {} parameters; {} steps", model,
                                   parallel::count_elements(strategy_->parameters()),
                                   last_step_));
    log::info("task", fmt::format("{}, the metric that counts is {}",
                                  built_.task->name(), result_.primary));
    if (config_.batch.global.value() > train_data_.size()) {
      log::warning("train",
                   fmt::format("batch.global is {}, but there are only {} samples: "
                               "every step takes all of them",
                               config_.batch.global.value(), train_data_.size()));
    }
  }

  // Every so many steps, and after the last.
  bool is_due(std::int64_t every, std::int64_t step) const {
    return step == last_step_ || (every > 0 && step % every == 0);
  }

  // Those at the end of a run are not, unless they happen to be: a run that is extended
  // must not come to other decisions than one that was longer from the beginning.
  bool is_regular_report() const {
    return result_.steps == 1 || result_.steps % config_.train.log_every == 0;
  }
  bool is_regular_evaluation() const {
    const auto every = config_.eval.every.value();
    return every == config::kEachEpoch ? state_.position.consumed == 0
                                       : every > 0 && result_.steps % every == 0;
  }

  bool evaluation_is_due(bool ends_epoch) const {
    const auto every = config_.eval.every.value();
    return every == config::kEachEpoch ? ends_epoch : is_due(every, result_.steps);
  }

  // A run that was asked to stop after a step leaves that step's evaluation to the one
  // that goes on, which would come to other decisions without it.
  bool owes_evaluation() const {
    return result_.steps > 0 && result_.steps < last_step_ && !leaving_ &&
           state_.evaluated_at != result_.steps &&
           evaluation_is_due(state_.position.consumed == 0);
  }

  // Reading the numbers waits for the device, which is why this does not happen at
  // every step.
  void report(double lr) {
    const auto report = progress_.report(
        {.step = result_.steps,
         .total_steps = last_step_,
         .epoch = state_.epoch,
         .lr = lr,
         .gradient_norm =
             norm_.defined() ? std::optional(norm_.item<double>()) : std::nullopt,
         .targets_per_sample = train_data_.spec().num_targets(),
         .targets_are_tokens = train_data_.spec().is_tokens(),
         .passes = profiler_.take_passes(),
         .memory = memory_of(built_.policy.device, shared_)},
        tally_);
    if (report.means.count > 0) {
      check_finite(report.means.loss, lr, world_.size() == 1 ? 0 : kSomeRank);
      result_.train_loss = report.means.loss;
    }
    result_.backend = report.backend;
    result_.forward_seconds +=
        report.forward_seconds() * static_cast<double>(report.steps);
    result_.backward_seconds +=
        report.backward_seconds() * static_cast<double>(report.steps);
    if (is_regular_report() && divergence_.observe(report.means.loss)) {
      end_early(divergence_.because());
    }
    call([&](auto& c, auto& m) { c.on_report(m, report); });
    result_.memory.clear();
    for (const auto& rank : report.ranks) result_.memory.push_back(rank.memory);
  }

  void check_finite(double loss, double lr, int rank) const {
    if (std::isfinite(loss)) return;
    strategy_->gather_gradients();  // all ranks see this loss
    const auto& parameters = strategy_->parameters();
    const auto bad = parallel::bad_gradients(parameters);
    const bool telling = !bad.empty() && bad.size() < parameters.size();
    throw Error(Fault::diverged, "train: the loss is ", loss, " by step ",
                result_.steps, rank == kSomeRank ? " (some rank" : str(" (rank ", rank),
                telling ? ", bad gradients: " + text::join(bad, ", ") : "",
                "); lower optim.lr (now ", lr, ") or lengthen schedule.warmup_steps");
  }

  std::optional<Means> evaluate_model(std::int64_t limit_batches) {
    reporter_.beat(result_.steps, Phase::evaluating);
    strategy_->share_buffers();
    return evaluate(*built_.model, eval_data_,
                    {.config = config_,
                     .policy = built_.policy,
                     .world = world_,
                     .task = *built_.task,
                     .step = result_.steps,
                     .ballot = [this] { return stop_ballot(); },
                     .beat = [this](Phase phase) { beat(phase); },
                     .shapes = &evaluated_shapes_,
                     .limit_batches = limit_batches});
  }

  // A mistake in the evaluation shows now, not after the first epoch.
  void check_evaluation() {
    const auto begin = clock_.now();
    const auto seen = evaluate_model(config_.eval.sanity_batches);
    if (!seen) return note_leaving(world_.votes().count());
    // Is it evaluated at all?
    EarlyStop(config_.early_stop, built_.task->primary()).observe(*seen);
    const auto took = clock_.now() - begin;
    progress_.skip(took);
    train_begin_ += took;
    log::info("train", fmt::format("evaluation works: loss {:.4f} before the first "
                                   "step, over {} samples",
                                   seen->loss, seen->count));
  }

  void evaluate_now() {
    settle(/*all=*/true);
    const auto begin = clock_.now();
    checkpoints_.fence();  // the average may come into the place of the weights
    call([](auto& c, auto& m) { c.on_eval_begin(m); });
    const bool average = strategy_->has_average() && config_.ema.evaluate;
    if (average) strategy_->use_average(true);
    const auto seen = evaluate_model(config_.train.fast_dev_run);
    // A second look at the same step, as after load_best, is no second evaluation.
    const bool again = state_.evaluated_at == result_.steps;
    const bool best = seen && !again && early_stop_.observe(*seen);
    if (seen) watched_ = early_stop_.watched(*seen);
    if (best && config_.checkpoint.save_best) save_weights("best.safetensors");
    if (average) strategy_->use_average(false);
    const auto took = clock_.now() - begin;
    progress_.skip(took);  // evaluating is not training time
    train_begin_ += took;
    if (!seen) return note_leaving(world_.votes().count());
    note_evaluation(*seen, {best, again, seconds_between(begin, begin + took)});
  }

  struct Evaluated {
    bool best = false;
    bool again = false;  // it is of a step that had been evaluated
    double seconds = 0;
  };
  // All ranks have the same numbers, so all come to the same decision.
  void note_evaluation(const Means& seen, const Evaluated& how) {
    const auto primary = built_.task->primary();
    const auto value = seen.find(primary.name);
    if (schedule_.observes() && !how.again) schedule_.observe(plateau_value(seen));
    if (value && std::isfinite(*value) &&
        (!result_.best || is_better(*value, *result_.best, primary.better))) {
      result_.best = value;
    }
    result_.eval = seen;
    result_.eval_is_of_average = strategy_->has_average() && config_.ema.evaluate;
    state_.evaluated_at = result_.steps;
    const auto memory = memory_of(built_.policy.device, shared_);
    const EvalReport report{result_.steps, state_.epoch, seen,
                            how.seconds,   how.best,     memory.peak_bytes};
    reporter_.eval(report);
    call([&](auto& c, auto& m) { c.on_eval_end(m, report); });
    const bool counts = !how.again && !leaving_ && result_.steps < last_step_;
    if (!early_stop_.is_over() || !counts) return;
    end_early(early_stop_.because());
  }

  // What schedule.goal says: the loss, or what the task says counts.
  double plateau_value(const Means& seen) const {
    const auto primary = built_.task->primary();
    const bool loss = config_.schedule.goal == config::Goal::min;
    return loss ? seen.loss : seen.find(primary.name).value_or(seen.loss);
  }

  void end_early(const std::string& why) {
    leaving_ = true;
    result_.ended_early = why;
    log::info("train", why);
  }

  // The weights first: nothing that comes after may lose them. A run that was asked to
  // stop is not evaluated.
  Result end() {
    settle(/*all=*/true);
    result_.earlier_train_seconds = earlier_seconds_;
    result_.train_seconds =
        earlier_seconds_ + seconds_between(train_begin_, clock_.now());
    if (const int signal = result_.stopped_by) {
      log::warning("train", fmt::format("stopped by {} after step {}",
                                        ::strsignal(signal), result_.steps));
    }
    const bool cut = result_.stopped_by != 0 || result_.out_of_time;
    if (cut) save_last();
    const bool saves = config_.checkpoint.final_weights && result_.steps > 0;
    if (saves) save_final();
    result_.split = save_profile(profiler_, world_, run_);
    const bool evaluated = state_.evaluated_at == result_.steps;
    if (!evaluated && !is_regular_evaluation()) before_end_ = run_state();
    if (result_.stopped_by == 0 && !evaluated) evaluate_now();
    if (!cut) save_last();
    if (config_.checkpoint.load_best && result_.stopped_by == 0 &&
        checkpoints_.load_best(*strategy_, result_.steps)) {
      if (saves) save_final();
      evaluate_now();
    }
    result_.seconds = seconds_between(begin_, clock_.now());
    call([this](auto& c, auto& m) { c.on_train_end(m, result_); });
    reporter_.finished(result_);
    return result_;
  }

  void save_checkpoint() {
    settle(/*all=*/true);
    beat(Phase::saving);
    own_.refresh(tally_, built_.policy.device);
    std::optional<storage::Metric> metric;
    if (state_.evaluated_at == result_.steps) metric = watched_;
    checkpoints_.save(
        *strategy_, {before_end_ ? *before_end_ : run_state(), metric, own_.pieces()});
  }

  // As it is now: each part says its own.
  RunState run_state() const {
    auto now = state_;
    now.steps = result_.steps;
    now.samples = result_.samples;
    now.skipped = result_.skipped;
    now.best_primary = result_.best;
    now.ended_early = result_.ended_early;
    now.train_seconds = earlier_seconds_ + seconds_between(train_begin_, clock_.now());
    now.best = early_stop_.best();
    now.waited = early_stop_.waited();
    now.early_stop = early_stop_knobs(config_.early_stop);
    now.divergence = divergence_.state();
    now.scaler = numbers_of(scaler_.state());
    now.schedule = numbers_of(schedule_.state());
    now.micro_batch = step_.micro_batch();
    now.recompute_every = built_.model->recompute_every();
    now.last_step = last_step_;
    now.order = strategy_->order();
    now.unused_steps = strategy_->unused_steps();
    return now;
  }

  // A run that is not over leaves one from which it can go on; one that is, one from
  // which it can be extended.
  void save_last() {
    const bool cut_short = result_.stopped_by != 0 ||
                           (result_.steps < last_step_ && result_.ended_early.empty());
    const auto every = config_.checkpoint.every;
    const bool regular = every > 0 && result_.steps % every == 0;
    if (result_.steps > 0 && (cut_short || regular || config_.checkpoint.save_last) &&
        checkpoints_.last_step() != result_.steps) {
      checkpoints_.finish();  // whatever on_busy says: this is the last
      save_checkpoint();
    }
    checkpoints_.finish();
    result_.checkpoint = checkpoints_.last();
  }

  void save_final() {
    checkpoints_.fence();
    result_.weights = save_weights("model.safetensors");
    if (!strategy_->has_average()) return;
    strategy_->use_average(true);
    result_.average = save_weights("ema.safetensors");
    strategy_->use_average(false);
  }

  // By rank 0, who has what all have. The name of the file, "" on the others.
  std::string save_weights(const std::string& name) {
    if (world_.rank() != 0) return "";
    reporter_.beat(result_.steps, Phase::saving);
    const auto file = run_.path() / name;
    checkpoint::write_safetensors(file, checkpoint::state_of(*built_.model));
    log::info("train", fmt::format("weights written to {}", file.string()));
    call([&](auto& c, auto& m) { c.on_saved(m, file); });
    return file.string();
  }

  const Clock& clock_ = Clock::system();
  const SteadyTime begin_ = clock_.now();
  const config::Config& config_;
  const monitor::RunDirectory& run_;
  Reporter& reporter_;
  comm::World& world_;
  const OwnStream stream_;
  std::optional<OwnStream::Scope> building_;  // until it is made
  const Shared& shared_;
  const CallbackList& callbacks_;
  StopSources stop_sources_;

  const data::Dataset &train_data_, &eval_data_;
  const optim::RunLength length_;
  const std::int64_t last_step_;
  const Built built_;
  optim::Schedule schedule_;
  Checkpoints checkpoints_;
  const std::unique_ptr<parallel::Strategy> strategy_;
  Profiler profiler_;
  Step step_;
  data::Loader loader_;
  data::DeviceFeed feed_;
  Progress progress_;
  Tally tally_;
  precision::LossScaler scaler_;
  EarlyStop early_stop_;
  OwnState own_{world_};
  Divergence divergence_;
  SeenShapes evaluated_shapes_;
  std::optional<StepGraph> graph_;
  std::optional<Attempts> attempts_;  // after each rank has its own generators
  std::optional<Trace> trace_;

  Result result_;
  std::string over_;                    // why there is nothing to do, else ""
  std::optional<RunState> before_end_;  // before an evaluation that the end asked for
  bool leaving_ = false;                // agreed
  double step_seconds_ = 0;             // the last one took
  std::int64_t made_steps_ = 0;         // by this process
  std::vector<comm::Ballot> ballots_;   // of the last step, by rank
  torch::Tensor norm_;                  // of the gradients of the last step, if known
  RunState state_;                      // what of it no part below, nor result_, has
  double earlier_seconds_ = 0;          // before a checkpoint
  std::optional<storage::Metric> watched_;  // of the last evaluation
  SteadyTime train_begin_;                  // moved on by the time spent evaluating
};

}  // namespace

Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world,
             const Extras& extras) {
  const auto shared = open_shared(config, extras);
  return train(config, run, reporter, stop, world, *shared);
}

Result train(const config::Config& config, const monitor::RunDirectory& run,
             Reporter& reporter, const StopRequest& stop, comm::World& world,
             Shared& shared) {
  return Training(config, run, reporter, stop, world, shared).run();
}

std::unique_ptr<Loop> make_loop(const config::Config& config,
                                const monitor::RunDirectory& run, Reporter& reporter,
                                const StopRequest& stop, comm::World& world,
                                Shared& shared) {
  return std::make_unique<Training>(config, run, reporter, stop, world, shared);
}

}  // namespace lockstep::train
