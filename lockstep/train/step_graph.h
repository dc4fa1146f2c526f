#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <c10/core/Event.h>
#include <torch/torch.h>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/data/batch.h"
#include "lockstep/data/dataset.h"
#include "lockstep/kernels/cuda_graph.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/loss_scaler.h"
#include "lockstep/task/tally.h"
#include "lockstep/train/step.h"

namespace lockstep::train {

// Returns whether a step whose gradients are not finite is left out.
bool skips_nonfinite(const config::TrainConfig& config,
                     const precision::LossScaler& scaler);

// Launches steps as a whole. Two CUDA graphs hold a step: one the passes over a batch
// of one shape, with what travels between GPUs meanwhile; the other the update. Between
// them the ranks vote, callbacks look at gradients, and the saver reads weights.
//
// Numbers that change with the step are put into device memory before each replay. A
// step whose gradients are not finite is skipped by the GPU, and the host hears of it a
// step later: so it puts two sets of numbers there, for both ends that the step before
// can have had, and the GPU takes the right one. All arithmetic stays the host's, which
// is why the bits are those of steps that are launched kernel by kernel.
//
// A shape is captured when it has come twice; what is said about capture here is agreed
// over the ranks.
//
// Collective: takes(), passes(), update().
// Stream:     one that is not the default, the same every time.
class StepGraph {
 public:
  struct Parts {
    const config::TrainConfig& train;
    bool offloads = false;  // memory.offload
    models::Model& model;
    Step& step;
    parallel::Strategy& strategy;
    task::Tally& tally;
    const precision::LossScaler& scaler;
    comm::World& world;
    data::SampleSpec spec;
    std::string watched_by = "";  // the part that looks inside of a step; "": none
    std::function<void()> before_capture = {};  // which may take long
    bool may_change = false;  // a program may switch parts of the model on and off
  };
  // Throws Fault::config where train.graph asks for what can not be.
  explicit StepGraph(const Parts& parts);
  ~StepGraph();

  // Returns whether graphs make the step over this batch, `steps` steps being done:
  // those of its shape are captured if need be.
  bool takes(const data::Batch& batch, std::int64_t steps,
             const std::optional<comm::Weights>& weights);

  // Replaces begin_step(), backward() and finish().
  void passes(const data::Batch& batch, std::int64_t steps,
              const std::optional<comm::Weights>& weights);
  // Replaces Strategy::update(). Returns the norm, if it was wanted or needed.
  torch::Tensor update(double lr, bool wants_norm, std::int64_t steps);

  // The outcome of an update.
  struct UpdateOutcome {
    std::int64_t step = 0;     // that it was, from 1
    bool skipped = false;      // the tally's sums are without it then
    std::int64_t targets = 0;  // that it added to the tally's count
  };
  // Returns the outcomes that are known without a long wait, all but the last one; or
  // all of them. Each is returned once, in order; the loss scale has to follow them.
  std::vector<UpdateOutcome> outcomes(bool all);

  // Frees the memory that graphs hold. Returns true if they held any.
  bool release();

 private:
  // A shape of a batch, and how it is cut.
  struct Key {
    std::vector<std::vector<std::int64_t>> sizes = {};  // of Batch::tensors()
    std::int64_t global_size = 0, largest_size = 0, micro_batch = 0, recompute = 0;
    std::vector<bool> switches = {};  // of modules and parameters, if they may change
    friend bool operator==(const Key&, const Key&) = default;
  };
  struct HeldShape {
    Key key;
    int seen = 0;              // so often without a graph
    bool refused = false;      // by what it does
    data::Batch batch;         // whose tensors stay where they are
    torch::Tensor words;       // Step::words_of()
    std::int64_t targets = 0;  // of its share
    std::unique_ptr<kernels::CudaGraph> graph;
  };
  struct Pending {
    UpdateOutcome outcome;
    torch::Tensor flag;  // on the host; undefined: it was not skipped
    std::optional<c10::Event> copied;
    bool is_counted = false;  // by the strategy
  };

  std::string obstacle() const;
  void refuse(const std::string& why);
  Key key_of(const data::Batch& batch) const;
  HeldShape* find_shape(const data::Batch& batch);
  struct Capture {
    const data::Batch& batch;
    std::int64_t steps;  // that are done
    const std::vector<std::uint64_t>& words;
  };
  bool capture(HeldShape& entry, const Capture& what);
  bool capture_update(const std::vector<double>& numbers);
  // The extent of a failed capture: one shape, or every graph from now on.
  struct Failure {
    enum class Of { nothing, shape, all } of = Of::nothing;
    std::string why = "";
  };
  static Failure try_capture(const std::function<void()>& capture);
  void capture_passes(HeldShape& entry, const data::Batch& batch, std::int64_t steps);
  // Returns the worst failure of all ranks.
  Failure agreed(const Failure& own);
  // Returns the loss scales after a step that was done, and after one that was skipped.
  std::pair<double, double> scales() const;
  void put(const torch::Tensor& where, const std::vector<std::uint64_t>& done,
           const std::vector<std::uint64_t>& skipped);
  const kernels::CudaGraph* first_graph() const;

  Parts parts_;
  const bool skips_;  // updates with gradients that are not finite
  bool off_ = false;
  bool told_of_shapes_ = false;
  std::list<HeldShape> entries_;
  HeldShape* current_ = nullptr;  // whose passes were replayed
  std::unique_ptr<kernels::CudaGraph> update_;
  std::int64_t places_ = 0;  // HeldSteps::prepare_update(), as captured
  torch::Tensor numbers_;    // of the update
  torch::Tensor skipped_;    // no dimension, float64: whether the last update was
  torch::Tensor norm_;       // if the update needs it
  std::deque<Pending> pending_;
};

}  // namespace lockstep::train
