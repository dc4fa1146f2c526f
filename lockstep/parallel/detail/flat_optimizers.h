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
// changes; what they remember follows the engine's layout.
//
// Collective: step(), use_average(), follow().
class FlatOptimizers {
 public:
  FlatOptimizers(const config::Config& config, Engine& engine,
                 comm::Communicator& data);

  // Parameters that no rank has used and what is remembered of them stay as they are.
  // Every rank has the new values when it returns.
  Updated step(const Update& update);

  // The same for a CUDA graph that holds it: parallel::HeldSteps says what they do.
  std::int64_t prepare_held();
  std::vector<double> held_numbers(const Update& update, int later) const;
  torch::Tensor launch_held(const torch::Tensor& numbers, const torch::Tensor& skipped);
  void count_held();
  torch::Tensor norm(const Update& update);

  bool has_average() const noexcept { return config_.ema.enabled; }
  // The average in the place of the values, or these again.
  void use_average(bool on);

  // The engine has laid out its buffers again.
  void follow();

  // Of parameters and what is remembered of them: what this rank writes into a
  // checkpoint, so that all ranks together write each element once; or what it needs of
  // one.
  checkpoint::Pieces pieces(bool to_save) const;
  std::vector<checkpoint::Expected> expected() const;

  // In how many steps nobody used a parameter, of those for which there were any; and
  // those of a checkpoint, after pieces(false) have been filled.
  UnusedSteps unused_steps() const;
  void use_unused_steps(const UnusedSteps& steps);

 private:
  struct Piece {
    Shard shard;
    std::unique_ptr<optim::Optimizer> optimizer;
    std::optional<optim::Ema> average;
    std::optional<optim::SquaredNorm> norm;

    // Of both: what has to follow the layout. Not how far parameters are behind.
    optim::NamedTensors state() const;
    // Of an optimizer that counts its steps; else undefined.
    torch::Tensor steps() const;
  };

  std::vector<Piece> make() const;
  std::vector<optim::OptionRange> ranges_of(const Shard& shard) const;
  torch::Tensor values_of(const Piece& piece) const;
  torch::Tensor squared_norm();
  optim::StepArguments arguments_of(const Update& update) const;
  void update(Piece& piece, optim::StepArguments arguments);
  void tell_behind(std::vector<Piece>& pieces) const;
  torch::Tensor whole(std::size_t group, const std::string& name) const;

  const config::Config config_;
  Engine& engine_;
  comm::Communicator& data_;
  std::vector<Group> layout_;  // for which the pieces are
  std::vector<Piece> pieces_;  // as engine.owned()
  optim::NormClip clip_;
  // By parameter, the same on every rank: the steps in which nobody used it. PyTorch
  // counts the steps of each parameter; here they agree but for these.
  std::vector<std::int64_t> behind_;
};

}  // namespace lockstep::parallel::detail
