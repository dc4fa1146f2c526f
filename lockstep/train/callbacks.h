#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/data/loader.h"
#include "lockstep/models/model.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/train/report.h"
#include "lockstep/train/step.h"

namespace lockstep::train {

// The state of a run when it calls a callback.
struct RunContext {
  const config::Config& config;
  models::Model& model;
  parallel::Strategy& strategy;
  comm::World& world;
  std::int64_t step = 0;  // steps that are done
  double epoch = 0;       // of the data, with its fraction
};

struct StepEnd {
  double lr = 0;
  bool skipped = false;  // the gradients were not finite
};

// Your code at the boundaries of a run derives from this class, overrides what it
// needs, and goes to train() (RunHooks). Every rank calls it at the same boundaries in
// the same order, on the thread that trains; `context.world` says which rank it is.
//
// An exception in it ends the run on all ranks. Ranks that are threads of one process
// (data_parallel) call one object, from several threads. A callback that changes
// weights, talks to other ranks or reads from a GPU may; the cost is its own.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(const RunContext&) {}
  virtual void on_epoch_begin(const RunContext&) {}

  // A global batch has come; `batch` is this rank's share.
  virtual void on_step_begin(const RunContext&, const data::Batch&) {}
  // Around the forward and the backward pass of each micro-batch. On a GPU the work has
  // been handed over, not done. A step for which there was no memory starts over.
  virtual void on_pass(const RunContext&, profile::PassEvent) {}
  // A callback without on_pass() returns false here: a CUDA graph, which runs a step as
  // a whole, can not call it, so there is none while a callback watches (train.graph).
  // It stays true for one that changes what the model computes by other means than its
  // parameters, a probability of dropout for instance: a graph would not see that.
  virtual bool watches_passes() const { return true; }
  // A callback that does not override on_step_end(), or does not read `skipped` there,
  // returns false here: then no step waits for that flag.
  virtual bool watches_skips() const { return true; }
  // The gradients are those of the global batch. Where the update is sharded each rank
  // has its part of them: context.strategy.visit_gradients() shows them as a whole.
  virtual void on_gradients(const RunContext&) {}
  // The weights have been changed.
  virtual void on_step_end(const RunContext&, const StepEnd&) {}

  // Called every train.log_every steps, with the numbers of all ranks.
  virtual void on_report(const RunContext&, const TrainReport&) {}
  virtual void on_eval_begin(const RunContext&) {}
  virtual void on_eval_end(const RunContext&, const EvalReport&) {}
  virtual void on_epoch_end(const RunContext&) {}
  // Called on the rank that has written a file.
  virtual void on_saved(const RunContext&, const std::filesystem::path&) {}
  virtual void on_train_end(const RunContext&, const Result&) {}

  // Asked during every step. If it returns true on one rank, all end after that step.
  virtual bool should_stop() const { return false; }
};

using CallbackList = std::vector<std::shared_ptr<Callback>>;

}  // namespace lockstep::train
