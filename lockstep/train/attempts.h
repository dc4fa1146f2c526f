#pragma once

#include <functional>
#include <vector>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/memory/recovery.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/profile/profiler.h"
#include "lockstep/train/report.h"
#include "lockstep/train/seen_shapes.h"
#include "lockstep/train/step.h"
#include "lockstep/train/step_graph.h"

namespace lockstep::train {

// Computes the gradients of a global batch, in as many attempts as it takes: a rank
// that runs out of memory takes part in the exchange with zeros, so that no other
// waits, and then all of them begin the step again with less (Recovery). A step that a
// graph makes has its memory already.
//
// Collective: is_held(), compute(), replay().
class Attempts {
 public:
  struct Parts {
    const config::MemoryConfig& memory;
    bool anomaly = false;  // train.anomaly
    models::Model& model;
    parallel::Strategy& strategy;
    Step& step;
    task::Tally& tally;
    comm::World& world;
    Reporter& reporter;
    profile::Profiler& profiler;
    StepGraph& graph;
  };
  explicit Attempts(const Parts& parts);

  // Returns what this rank tells the others about the step; called after each attempt.
  using Tell = std::function<comm::Ballot()>;

  // The step after `steps`.
  struct NextStep {
    std::int64_t steps;
    double loss_scale;
  };

  // Computes a step. When it returns, the gradients are those of the global batch.
  // Returns the ballots of all ranks.
  const std::vector<comm::Ballot>& compute(const data::Batch& batch,
                                           const NextStep& next, const Tell& tell);

  // Returns whether a graph makes the step after `steps` over this batch.
  bool is_held(const data::Batch& batch, std::int64_t steps);
  // Does what compute() does, by that graph.
  const std::vector<comm::Ballot>& replay(const data::Batch& batch, std::int64_t steps,
                                          const Tell& tell);

 private:
  profile::Profiler::Phase waiting() const;
  void note_success(std::int64_t steps);
  bool attempt(const data::Batch& batch, std::int64_t steps, double loss_scale);
  void recover(const std::vector<comm::Ballot>& ballots, std::int64_t steps);

  Parts parts_;
  memory::Recovery recovery_;
  SeenShapes shapes_;
  std::optional<comm::Weights> weights_;  // of this step's targets, if known before
  bool told_of_batch_norm_ = false;
};

}  // namespace lockstep::train
