#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/data/device_feed.h"
#include "lockstep/data/loader.h"
#include "lockstep/kernels/own_stream.h"
#include "lockstep/profile/profiler.h"
#include "lockstep/profile/trace.h"
#include "lockstep/train/attempts.h"
#include "lockstep/train/build.h"
#include "lockstep/train/callback_calls.h"
#include "lockstep/train/checkpoints.h"
#include "lockstep/train/evaluator.h"
#include "lockstep/train/kernel_choices.h"
#include "lockstep/train/progress.h"
#include "lockstep/train/rank_state.h"
#include "lockstep/train/step_graph.h"
#include "lockstep/train/stop_policy.h"
#include "lockstep/train/trainer.h"
#include "lockstep/train/updates.h"
#include "lockstep/train/weight_files.h"

namespace lockstep::train {

// One training run: a short loop (trainer.cpp) over parts that each keep their own
// state and give it to a checkpoint. The members are made in this order, from the
// device to the loader (training_setup.cpp); what is measured, evaluated and saved
// after steps is in training_results.cpp.
class Training : public Loop {
 public:
  Training(const config::Config& config, const RunParts& parts, Shared& shared);

  Result run();

  void begin() override;

  // Returns whether no step is left.
  bool is_over() const override;

  // Makes one optimizer step, and what is due after it. Returns whether an epoch ends.
  bool step() override;

  Result finish() override;

  // Makes an evaluation that the config has not asked for.
  task::Means validate() override;
  std::string save() override;
  const Result& result() const override { return result_; }

 private:
  void set_up(Shared& shared);

  // Returns the order of the parameters in the strategy's buckets, by name.
  std::vector<std::string> order() const;

  // Returns what looks inside of steps, as a clause; "" if nothing does.
  std::string who_watches() const;

  data::LoaderOptions loader_options() const;

  // Restores the run from a checkpoint, if there is one.
  void restore();

  // Returns the current state: each part gives its own.
  RunState run_state() const;

  void copy_to_result();

  // Returns the result of a run that was over before it started; writes nothing.
  Result leave_as_it_is();

  void find_micro(Shared& shared);

  std::function<void(profile::PassEvent)> observer();

  void beat(run::Phase phase) { reporter_.beat(state_.steps, phase); }

  void begin_step(const data::Batch& batch);

  // Computes the gradients of the global batch. Returns whether a graph does.
  bool compute(const data::Batch& batch);

  const parallel::ExchangeTimes* exchange_times() {
    const auto* exchange = strategy_->exchange();
    return exchange == nullptr ? nullptr : &exchange->times();
  }

  void settle(bool all) { updates_.settle(graph_ ? &*graph_ : nullptr, all); }

  comm::Ballot stop_ballot();

  // Returns what this rank tells the others about its step.
  comm::Ballot ballot();

  void agree();

  void on_ballots(const std::vector<comm::Ballot>& ballots);

  void check_agreed_finite(double lr);

  void account(const data::Batch& batch, double lr);

  // Does what is due after a step; the last one is saved when it has been evaluated.
  void end_step(bool ends_epoch);

  // Returns true every so many steps, and after the last.
  bool is_due(std::int64_t every, std::int64_t step) const;

  // Returns false for a report that only the run's end asks for: a run that is extended
  // must not decide otherwise than one that was longer from the beginning.
  bool is_regular_report() const;

  // A run that was asked to stop after a step leaves that step's evaluation to the one
  // that resumes it, which would come to other decisions without it.
  bool owes_evaluation() const;

  // Reading the numbers waits for the device, which is why this does not happen at
  // every step.
  void report(double lr);

  void add_to_result(const TrainReport& report);

  // Evaluating is not training time.
  void skip_since(SteadyTime begin);

  // A mistake in the evaluation shows now, not after the first epoch.
  void check_evaluation();

  void evaluate();

  // Writes the weights first: nothing that comes after may lose them. A run that was
  // asked to stop is not evaluated.
  Result end();

  void save_checkpoint();

  void save_last();

  bool is_cut_short() const;

  void save_final();

  const Clock& clock_ = Clock::system();
  const SteadyTime begin_ = clock_.now();
  const config::Config& config_;
  const run::RunDirectory& run_;
  Reporter& reporter_;
  comm::World& world_;
  const kernels::OwnStream stream_;
  std::optional<kernels::OwnStream::Scope> building_;  // until it is made
  const Shared& shared_;

  RunState state_;        // the rest, which no part keeps itself
  bool in_step_ = false;  // from the first micro-batch to the update
  StopPolicy stop_;
  const data::Dataset& train_data_;
  const optim::RunLength length_;
  const std::int64_t last_step_;
  const Built built_;
  KernelChoices kernel_choices_;
  optim::Schedule schedule_;
  Checkpoints checkpoints_;
  const std::unique_ptr<parallel::Strategy> strategy_;
  CallbackCalls callbacks_;
  profile::Profiler profiler_;
  Step step_;
  data::Loader loader_;
  data::DeviceFeed feed_;
  Progress progress_;
  task::Tally tally_;
  Updates updates_;
  Evaluator evaluator_;
  WeightFiles weights_;
  RankState rank_state_{world_};
  std::optional<StepGraph> graph_;
  std::optional<Attempts> attempts_;  // after each rank has its own generators
  std::optional<profile::Trace> trace_;

  Result result_;
  std::string over_;                    // why there is nothing to do, else ""
  std::optional<RunState> before_end_;  // before an evaluation that the end asked for
  double step_seconds_ = 0;             // the last one took
  std::int64_t made_steps_ = 0;         // by this process
  bool owns_loop_ = false;              // run() makes the steps, not a program
  std::vector<comm::Ballot> ballots_;   // of the last step, by rank
  double earlier_seconds_ = 0;          // before a checkpoint
  SteadyTime train_begin_;              // moved on by the time spent evaluating
};

}  // namespace lockstep::train
