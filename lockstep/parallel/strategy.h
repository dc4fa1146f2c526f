#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/held_steps.h"
#include "lockstep/parallel/layout.h"
#include "lockstep/parallel/strategy_state.h"

namespace lockstep::parallel {

// The arguments of an update of the parameters.
struct Update {
  double lr = 0;
  double loss_scale = 1;         // by which the loss was multiplied
  bool wants_norm = false;       // of the gradients, even if they are not clipped
  bool skips_nonfinite = false;  // nothing is changed if a gradient is not finite
  // Values may still travel when it returns: forward() waits for those that it needs,
  // every other method of the strategy for all; settle() does, for who reads parameters
  // without one.
  bool values_may_travel = false;
};

struct Updated {
  bool skipped = false;
  // The norm of all gradients before they were clipped, float64 on the device; it is
  // overwritten by the next update. Undefined if it was not needed.
  torch::Tensor norm = {};
};

// Trains a model on the ranks of a job: decides which rank holds what, what travels,
// and how parameters change. A training loop has one and does not know which:
//
//   strategy->begin_step();
//   for (each micro-batch) {
//     strategy->forward([&] { loss = ...; });
//     strategy->backward(loss, last);
//   }
//   strategy->finish();
//   strategy->update({.lr = lr});
//
// The loss is a sum over this rank's samples divided by the number of samples of all
// ranks (design: the global batch), so that gradients add up whatever the shares are.
//
// Collective: everything but backward() with last == false, and the getters.
// Threads:    one: the one that made it.
// Lifetime:   the module and the world outlive it.
class Strategy {
 public:
  virtual ~Strategy() = default;

  virtual std::string_view name() const noexcept = 0;  // "ddp"

  // Zeroes the gradients; with parallel.broadcast_buffers all ranks get rank 0's
  // buffers. `passes` is the number of backward passes of the rank that makes the most.
  virtual void begin_step(std::int64_t passes = 1) = 0;

  // Runs the model (`compute`), and provides what its layers need of other ranks.
  virtual void forward(const std::function<void()>& compute) { compute(); }

  // Takes part in a forward pass of other ranks that has no backward pass, where
  // forwards_must_match(): parameters are gathered in it.
  virtual void empty_forward() {}
  virtual bool forwards_must_match() const noexcept { return false; }

  // Returns a parameter of the module, trained or not, as a whole, outside of a pass;
  // where parameters are sharded it is valid until the next call. Collective.
  virtual torch::Tensor full_parameter(const torch::Tensor& parameter) {
    return parameter.detach();
  }
  // Returns compute(input), for a caller who uses the parameters of a block of the
  // model without that block's own forward(): they are there in `compute`. In forward()
  // and in the order of the blocks. It is not collective: ranks in empty_forward() have
  // no part in it.
  using Compute = std::function<torch::Tensor(const torch::Tensor&)>;
  virtual torch::Tensor run_block(std::size_t, const Compute& compute,
                                  const torch::Tensor& input) {
    return compute(input);
  }

  // `last` marks the last of a step on this rank; the buckets it completes start to
  // travel. A rank without samples has none and calls finish() only.
  virtual void backward(const torch::Tensor& loss, bool last) = 0;

  // Does the same for gradients that a caller computes without autograd.
  virtual void backward_by(const std::function<void(GradientSink&)>& compute,
                           bool last) = 0;

  // Takes part in a backward pass of other ranks that this one has no samples for;
  // where sums_every_pass() every rank makes as many passes as the others.
  virtual void empty_pass() {}
  virtual bool sums_every_pass() const noexcept { return false; }

  // The gradients are those of the global batch when it returns. Throws Fault::config,
  // on every rank, for parameters that took no part in the loss. With `failed`
  // backward() ended with an exception on this rank; it takes part with zeros, so that
  // no other waits, and the gradients are worthless on all.
  virtual void finish(bool failed = false) = 0;

  // Shows every gradient of the global batch, as a whole, between finish() and
  // update(), which may need a part of them only. They are gathered for that, a few at
  // a time where they are whole on no rank: what is shown is valid during the call.
  using Visit = std::function<void(const Parameter& parameter, const torch::Tensor&)>;
  virtual void visit_gradients(const Visit& visit) = 0;

  // Changes the parameters by their gradients. Parameters that no rank has used are
  // left as they are, and their optimizer state, too. Clips by optim.clip_norm (one
  // norm over all ranks and shards) and optim.clip_value.
  virtual Updated update(const Update& wanted) = 0;

  // Waits for values that update() has left on their way.
  virtual void settle() {}

  // Gives every rank rank 0's buffers, before they are evaluated or saved.
  virtual void share_buffers() = 0;

  // Returns the state that a checkpoint holds.
  virtual StrategyState& state() noexcept = 0;

  // Returns whether every rank has to run as many forward passes as the one with the
  // most samples, over empty batches if need be: layers talk to each other.
  virtual bool passes_must_match() const noexcept { return false; }

  // Returns the interface to whole tensors of parameters.
  virtual FullTensors& full_tensors() noexcept = 0;

  // Returns the interface for CUDA graphs that hold its steps; nullptr: none can.
  virtual HeldSteps* held() noexcept { return nullptr; }

  // Returns the average of the weights; nullptr: there is none.
  virtual WeightAverage* average() noexcept { return nullptr; }

  // Returns the monitor of the exchange between ranks; nullptr: none.
  virtual ExchangeMonitor* exchange() noexcept { return nullptr; }

  virtual const std::vector<Parameter>& parameters() const noexcept = 0;
};

struct StrategyParts {
  const config::Config& config;
  torch::nn::Module& module;
  comm::World& world;
  // The names of the parameters in the order in which gradients become ready, the same
  // on every rank (backward_order()); those that it does not name come last.
  std::vector<std::string> order = {};
  // As EngineOptions::fill: for a model without memory, where defers_memory().
  std::function<void(const EngineOptions::Assign&)> fill = {};
};

// Returns whether a strategy is given a model without memory: one that has to fit is
// never there beside the flat buffers.
bool defers_memory(const config::ParallelConfig& parallel, const comm::World& world);

// Makes the strategy; the only switch over parallel.strategy. Throws Fault::config if
// the models of the ranks differ. Collective.
std::unique_ptr<Strategy> make_strategy(const StrategyParts& parts);
inline std::unique_ptr<Strategy> make_strategy(const config::Config& config,
                                               torch::nn::Module& module,
                                               comm::World& world) {
  return make_strategy({config, module, world});
}

std::int64_t count_elements(const std::vector<Parameter>& parameters);

// Returns the parameters whose gradients hold a NaN or an infinity. Collective.
std::vector<std::string> bad_gradients(Strategy& strategy);

}  // namespace lockstep::parallel
