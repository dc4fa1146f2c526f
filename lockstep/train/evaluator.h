#pragma once

#include <functional>
#include <optional>
#include <string>

#include "lockstep/optim/schedule.h"
#include "lockstep/train/build.h"
#include "lockstep/train/callback_calls.h"
#include "lockstep/train/early_stop.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/prompts.h"

namespace lockstep::train {

// The outcome of an evaluation.
struct Evaluation {
  task::Means means;
  bool is_best = false;
  bool is_repeated = false;  // the step had been evaluated before
};

// Evaluates the model, and knows when that is due, which evaluation was the best, and
// whether a better one is to be expected (early_stop).
//
// Collective: check(), evaluate().
// Lifetime:   everything that it is given outlives it.
class Evaluator {
 public:
  struct Knobs {
    const config::EvalConfig& eval;
    const config::EarlyStopConfig& early_stop;
    const config::ScheduleConfig& schedule;
    Prompts::Knobs prompts;
    data::LoaderOptions loader;
    std::int64_t batch = 1;          // samples of a rank at a time
    std::int64_t limit_batches = 0;  // of every evaluation; 0: as the loader says
    bool retries = false;            // after an error of too little memory
    bool of_average = true;  // evaluates the average of weights, if there is one
  };
  // Returns the knobs that a run's evaluations follow. The config outlives them.
  static Knobs knobs_of(const config::Config& config, const comm::World& world);

  struct Parts {
    Knobs knobs;
    const Built& built;
    const data::Dataset& data;
    comm::World& world;
    parallel::Strategy& strategy;
    Reporter& reporter;
    optim::Schedule& schedule;  // a plateau follows what is measured
    const CallbackCalls& callbacks;
    const Shared& shared;
    RunState& state;  // the step, and at which one it was evaluated last
    std::int64_t last_step = 0;
    std::function<comm::Ballot()> ballot;  // comm::kStop ends an evaluation
  };
  explicit Evaluator(const Parts& parts);

  // Returns whether the step that was done last is to be evaluated.
  bool is_due(bool ends_epoch) const;
  // Returns whether an evaluation of this step is due by more than the end of the run:
  // a run that is extended must not come to other decisions than one that was longer
  // from the beginning.
  bool is_regular() const;
  bool is_done() const { return parts_.state.evaluated_at == parts_.state.steps; }

  // Looks at a few batches before the first step, so that a mistake shows now. Returns
  // nothing if a rank is to leave.
  std::optional<task::Means> check();
  // Evaluates the model, or the average of its weights where ema.evaluate says so.
  // `on_best` is called while those weights are in their place. Returns nothing if a
  // rank is to leave.
  std::optional<Evaluation> evaluate(const std::function<void()>& on_best);

  // Lets the model continue eval.prompts, before the first step.
  void show_prompts();

  // Evaluates without an effect on early stopping, the schedule or reports.
  std::optional<task::Means> look(std::int64_t limit_batches);

  // Returns whether early_stop.patience is exhausted; because() says why.
  bool gives_up() const { return early_stop_.is_over(); }
  std::string because() const { return early_stop_.because(); }

  // Returns the last evaluation.
  const std::optional<task::Means>& last() const noexcept { return last_; }
  const std::optional<storage::WatchedMetric>& watched() const noexcept {
    return watched_;
  }
  bool is_of_average() const;

  void save(RunState& state) const;
  void restore(const RunState& at);

 private:
  void conclude(const Evaluation& seen, double seconds);
  double plateau_value(const task::Means& seen) const;

  Parts parts_;
  EarlyStop early_stop_;
  Prompts prompts_;
  SeenShapes shapes_;
  std::optional<task::Means> last_;
  std::optional<storage::WatchedMetric> watched_;
};

}  // namespace lockstep::train
