#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/checkpoint/pieces.h"
#include "lockstep/comm/communicator.h"
#include "lockstep/config/config.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/ema.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/strategy.h"

namespace lockstep::parallel::detail {

// One optimizer, and one average, for each piece of the flat buffers that this rank
// changes.
//
// Collective: step(), use_average().
class FlatOptimizers {
 public:
  struct Knobs {
    config::OptimConfig optim;
    config::EmaConfig ema;
  };
  FlatOptimizers(const Knobs& knobs, Engine& engine, comm::Communicator& data);

  // Leaves parameters that no rank has used, and their optimizer state, as they are.
  // Every rank has the new values when it returns.
  Updated step(const Update& update);

  // These do the same for a CUDA graph: parallel::HeldSteps says what they do.
  std::int64_t prepare_held();
  std::vector<double> held_numbers(const Update& update, int later) const;
  torch::Tensor launch_held(const torch::Tensor& numbers, const torch::Tensor& skipped);
  void count_held();
  torch::Tensor norm(const Update& update);

  // Returns the optimizer's state of engine.owned()[index], by name.
  optim::NamedTensors piece_state(std::size_t index) const;

  bool has_average() const noexcept { return knobs_.ema.enabled; }
  // Puts the average into the place of the values, or these back.
  void use_average(bool on);

  // Returns the pieces of parameters and optimizer state that this rank writes into a
  // checkpoint, so that all ranks together write each element once; or those that it
  // needs of one.
  checkpoint::Pieces pieces(bool to_save) const;
  std::vector<checkpoint::Expected> expected() const;

  // Returns, by parameter, in how many steps no rank used it, if there were any; the
  // other takes those of a checkpoint, after pieces(false) have been filled.
  UnusedSteps unused_steps() const;
  void use_unused_steps(const UnusedSteps& steps);

 private:
  struct Piece {
    std::size_t index = 0;  // in engine.owned()
    Shard shard;
    std::unique_ptr<optim::Optimizer> optimizer;
    std::optional<optim::Ema> average;
    std::optional<optim::SquaredNorm> norm;

    // Returns the state of both, by element; not how far parameters lag.
    optim::NamedTensors state() const;
    // Returns the step count of an optimizer that keeps one; else undefined.
    torch::Tensor steps() const;
  };

  std::vector<Piece> make() const;
  std::vector<optim::OptionRange> option_ranges(const Shard& shard) const;
  torch::Tensor squared_norm();
  optim::StepArguments arguments_of(const Update& update) const;
  void update(Piece& piece, optim::StepArguments arguments);
  void tell_behind(std::vector<Piece>& pieces) const;

  const Knobs knobs_;
  Engine& engine_;
  comm::Communicator& data_;
  std::vector<Group> layout_;  // for which the pieces are
  std::vector<Piece> pieces_;  // as engine.owned()
  optim::NormClip clip_;
  // Counts, by parameter, the steps in which no rank used it; the same on every rank.
  // PyTorch counts the steps of each parameter; here they agree but for these.
  std::vector<std::int64_t> behind_;
};

}  // namespace lockstep::parallel::detail
