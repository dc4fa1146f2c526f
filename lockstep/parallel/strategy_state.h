#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/checkpoint/pieces.h"

namespace lockstep::parallel {

// The number of steps, by parameter, in which no rank used it.
using UnusedSteps = std::map<std::string, std::int64_t>;

// The state of a strategy's model and optimizer in a checkpoint.
class StrategyState {
 public:
  virtual ~StrategyState() = default;

  // These return the pieces that this rank writes, so that all ranks together write
  // each element once; those that it needs, from any rank; and all that there are, on
  // any rank.
  virtual checkpoint::Pieces to_save() const = 0;
  virtual checkpoint::Pieces to_load() const = 0;
  virtual std::vector<checkpoint::Expected> expected() const = 0;

  // Returns the order of the parameters in memory, which the last bits of a norm depend
  // on: a run that resumes gives it to make_strategy().
  virtual std::vector<std::string> order() const = 0;

  // Returns the parameters that the optimizer counts fewer steps of; the other takes
  // those of an earlier run, after the pieces of to_load() have been filled.
  virtual UnusedSteps unused_steps() const = 0;
  virtual void use_unused_steps(const UnusedSteps& steps) = 0;
};

// Whole tensors by the name of their trained parameter, whatever is sharded, to look at
// and to set. Names that there are not throw Fault::config.
//
// Collective: all of it, between steps, in the same order on every rank.
class FullTensors {
 public:
  virtual ~FullTensors() = default;

  virtual torch::Tensor parameter(std::string_view name) = 0;
  virtual void set_parameter(std::string_view name, const torch::Tensor& value) = 0;

  // The gradient of the global batch, between finish() and the next step.
  virtual torch::Tensor gradient(std::string_view name) = 0;
  virtual void set_gradient(std::string_view name, const torch::Tensor& value) = 0;

  // The optimizer's: "mean", "master" and such, of the parameter's shape, and single
  // numbers that all parameters share ("step").
  virtual std::map<std::string, torch::Tensor> optimizer_state(
      std::string_view name) = 0;
  virtual void set_optimizer_state(std::string_view name, const std::string& state,
                                   const torch::Tensor& value) = 0;
};

// The average of the weights (ema.enabled).
class WeightAverage {
 public:
  virtual ~WeightAverage() = default;

  // Puts it into the place of the weights, or these back. Nothing may be updated in
  // between.
  virtual void use(bool on) = 0;
};

}  // namespace lockstep::parallel
