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

// Where a run is when it calls.
struct Moment {
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

// What a program of yours does at the boundaries of a run: derive from it, write what
// you need, and give it to train() (Extras). Every rank calls at the same boundaries in
// the same order, on the thread that trains; `moment.world` says which rank it is.
//
// What it throws ends the run, on all ranks. Ranks that are threads of one process
// (data_parallel) call one object, from several threads. A callback that changes
// weights, talks to other ranks or reads from a GPU may; what that costs is its own.
class Callback {
 public:
  virtual ~Callback() = default;

  virtual void on_train_begin(const Moment&) {}
  virtual void on_epoch_begin(const Moment&) {}

  // A global batch has come; `batch` is this rank's share.
  virtual void on_step_begin(const Moment&, const data::Batch&) {}
  // Around the forward and the backward pass of each micro-batch. On a GPU the work has
  // been handed over, not done. A step for which there was no memory begins again.
  virtual void on_pass(const Moment&, Pass) {}
  // One that leaves on_pass() alone says so here: a CUDA graph, which runs a step as a
  // whole, can not call it, so there is none while somebody watches (train.graph).
  // It stays true for one that changes what the model computes by other means than its
  // parameters, a probability of dropout for instance: a graph would not see that.
  virtual bool watches_passes() const { return true; }
  // One that leaves on_step_end() alone, or does not look at `skipped` there, says so
  // here: then nobody waits to know that.
  virtual bool watches_skips() const { return true; }
  // The gradients are those of the global batch; with a sharded update each rank has
  // its part, until moment.strategy.gather_gradients().
  virtual void on_gradients(const Moment&) {}
  // The weights have been changed.
  virtual void on_step_end(const Moment&, const StepEnd&) {}

  // Every train.log_every steps: the numbers of all ranks.
  virtual void on_report(const Moment&, const TrainReport&) {}
  virtual void on_eval_begin(const Moment&) {}
  virtual void on_eval_end(const Moment&, const EvalReport&) {}
  virtual void on_epoch_end(const Moment&) {}
  // A file has been written; on the rank that wrote it.
  virtual void on_saved(const Moment&, const std::filesystem::path&) {}
  virtual void on_train_end(const Moment&, const Result&) {}

  // Asked during every step. If one says so on one rank, all end after that step.
  virtual bool has_seen_enough() const { return false; }
};

using CallbackList = std::vector<std::shared_ptr<Callback>>;

}  // namespace lockstep::train
