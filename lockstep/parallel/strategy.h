#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include "lockstep/checkpoint/pieces.h"
#include "lockstep/comm/join.h"
#include "lockstep/config/config.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/held_steps.h"
#include "lockstep/parallel/layout.h"

namespace lockstep::parallel {

// How parameters are to be changed.
struct Update {
  double lr = 0;
  double loss_scale = 1;         // by which the loss was multiplied
  bool wants_norm = false;       // of the gradients, even if they are not clipped
  bool skips_nonfinite = false;  // nothing is changed if a gradient is not finite
};

// By parameter: the steps in which no rank used it.
using UnusedSteps = std::map<std::string, std::int64_t>;

struct Updated {
  bool skipped = false;
  // The norm of all gradients before they were clipped, float64 on the device; it is
  // overwritten by the next update. Undefined if nobody needed it.
  torch::Tensor norm = {};
};

// How a model is trained on the ranks of a job: who holds what, what travels when, and
// how parameters are changed. A training loop has one and does not know which:
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
  // buffers.
  virtual void begin_step() = 0;

  // `compute` runs the model: here what its layers need of the other ranks is provided.
  virtual void forward(const std::function<void()>& compute) { compute(); }

  // `last`: of this step on this rank; what it completes starts to travel. A rank
  // without samples has none and calls finish() only.
  virtual void backward(const torch::Tensor& loss, bool last) = 0;

  // The same for gradients that somebody computes without autograd.
  virtual void backward_by(const std::function<void(GradientSink&)>& compute,
                           bool last) = 0;

  // The gradients are those of the global batch when it returns. Throws Fault::config,
  // on every rank, for parameters that took no part in the loss.
  // `failed`: backward() ended with an exception on this rank; it takes part with
  // zeros, so that no other waits, and the gradients are worthless on all.
  virtual void finish(bool failed = false) = 0;

  // After finish(): whole gradients on every rank, for whoever looks at them. update()
  // may need a part of them only.
  virtual void gather_gradients() {}

  // Changes the parameters by their gradients. Parameters that no rank has used are
  // left as they are, and what the optimizer remembers of them, too.
  // Clips by optim.clip_norm (one norm over all ranks and shards) and optim.clip_value.
  virtual Updated update(const Update& wanted) = 0;

  // The average of the weights (ema.enabled) in their place, or these again. Nothing
  // may be updated in between.
  virtual bool has_average() const noexcept { return false; }
  virtual void use_average(bool) {}

  // Rank 0's buffers on every rank: before they are evaluated or saved.
  virtual void share_buffers() = 0;

  // What a checkpoint holds of the model and the optimizer: what this rank writes, so
  // that all ranks together write each element once; what it needs of one, whoever
  // wrote it; and all that there is, whoever holds it.
  virtual checkpoint::Pieces to_save() const = 0;
  virtual checkpoint::Pieces to_load() const = 0;
  virtual std::vector<checkpoint::Expected> expected() const = 0;

  // The order of the parameters in memory, which the last bits of a norm depend on; and
  // that of an earlier run, before the first step.
  virtual std::vector<std::string> order() const { return {}; }
  virtual void use_order(const std::vector<std::string>&) {}

  // Of parameters that the optimizer counts fewer steps of than of the others; and
  // those of an earlier run, after what to_load() names has been filled.
  virtual UnusedSteps unused_steps() const { return {}; }
  virtual void use_unused_steps(const UnusedSteps&) {}

  // Every rank has to run as many forward passes as the one with the most samples, over
  // empty batches if need be: layers of the model talk to each other.
  virtual bool passes_must_match() const noexcept { return false; }

  // For CUDA graphs that hold its steps; nullptr: they can not be held.
  virtual HeldSteps* held() noexcept { return nullptr; }

  // Of the last finished step; none if the strategy does not measure them.
  virtual const ExchangeTimes* times() const noexcept { return nullptr; }

  // Between two steps: tells of what travels from now on; nullptr: nobody.
  virtual void observe(ExchangeObserver*) noexcept {}

  virtual const std::vector<Parameter>& parameters() const noexcept = 0;
};

// The only switch over parallel.strategy. Throws Fault::config if the models of the
// ranks differ. Collective.
std::unique_ptr<Strategy> make_strategy(const config::Config& config,
                                        torch::nn::Module& module, comm::World& world);

std::int64_t count_elements(const std::vector<Parameter>& parameters);

// The parameters whose gradients hold a NaN or an infinity.
std::vector<std::string> bad_gradients(const std::vector<Parameter>& parameters);

}  // namespace lockstep::parallel
