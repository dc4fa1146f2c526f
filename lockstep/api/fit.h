#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/data/dataset.h"
#include "lockstep/data/tensor_dataset.h"
#include "lockstep/models/adapt.h"
#include "lockstep/task/task.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/report.h"

// Trains a user's own module, with all that `lockstep train` has: a plan for this
// machine, mixed precision, metrics, evaluation, checkpoints, a run directory that a
// second start resumes from. The same program trains on several ranks if it is started
// by `lockstep launch`, torchrun, mpirun or srun.
//
//   const auto history = fit(net, data, {.knobs = {"train.epochs=3"}});
//   std::cout << history.summary();
namespace lockstep {

struct FitData {
  std::shared_ptr<const data::Dataset> train, eval;
};

struct FitOptions {
  // Knobs as on the command line of `lockstep train`: "optim.lr=1e-3". All knobs of
  // docs/reference/config.md hold but those of the sections model and data that say
  // which; run.name names the directory from which a second start resumes. They win
  // over variables (LOCKSTEP_OPTIM_LR), and those over the recipe.
  std::vector<std::string> knobs = {};
  std::string recipe = "";  // a file to begin with
  // The losses and metrics of the outputs; none: those of the section `task`. Beside
  // one, knobs of that section, eval.metrics and weights of classes are refused.
  std::shared_ptr<const task::Task> task = nullptr;
  train::CallbackList callbacks = {};
};

// The result of a run, and its metrics on the way.
struct History {
  struct Point {
    std::int64_t step = 0;
    double epoch = 0;
    task::Means means;
  };
  std::vector<Point> train;  // every train.log_every steps
  std::vector<Point> eval;
  train::Result result;
  std::filesystem::path run;  // its directory

  // Returns the table that `lockstep train` ends with: what was reached, how fast, and
  // how much of the device's memory it took.
  std::string summary() const;
};

// The parts of a run, for a user's own loop:
//
//   Trainer trainer(net, data, {.knobs = {"train.epochs=3"}});
//   while (!trainer.is_over()) {
//     trainer.train_epoch();
//     std::cout << trainer.validate().loss << "\n";
//   }
//   const auto history = trainer.finish();
//
// Collective: all but the getters.
class Trainer {
 public:
  // Starts or resumes the run that the knobs name. Throws Fault::config for knobs that
  // contradict each other, the model or the data.
  Trainer(std::shared_ptr<models::Model> model, const FitData& data,
          const FitOptions& options = {});
  // Takes any module with a forward() of one tensor.
  template <typename Module>
  Trainer(const Module& module, const FitData& data, const FitOptions& options = {})
      : Trainer(models::adapt(module), data, options) {}
  ~Trainer();
  Trainer(const Trainer&) = delete;
  Trainer& operator=(const Trainer&) = delete;

  // Returns whether all steps are done, or a signal, a callback or early_stop ends it.
  bool is_over() const;

  // Trains to the end of the epoch, or of the run.
  void train_epoch();
  // Trains so many steps at most.
  void train_steps(std::int64_t number);

  task::Means validate();
  // Returns its directory. A run that is cut short resumes from the newest. Between
  // steps, or in Callback::on_step_end(): half a step is no part of a checkpoint.
  std::string save_checkpoint();

  // Saves the weights and the last checkpoint and evaluates once more, if that is due.
  // Nothing may be called afterwards.
  History finish();

  const History& history() const;  // so far
  models::Model& model();
  int rank() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// Trains to the end of the run.
History fit(std::shared_ptr<models::Model> model, const FitData& data,
            const FitOptions& options = {});

template <typename Module>
History fit(const Module& module, const FitData& data, const FitOptions& options = {}) {
  return fit(models::adapt(module), data, options);
}

}  // namespace lockstep
