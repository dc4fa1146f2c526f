#pragma once

#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/config/optim.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"

namespace lockstep::parallel::detail {

// One optimizer for each piece of the flat buffers that this rank changes; what they
// remember follows the engine's layout.
//
// Collective: step(), follow().
class FlatOptimizers {
 public:
  FlatOptimizers(const config::OptimConfig& config, Engine& engine,
                 comm::Communicator& data);

  // Parameters that no rank has used and what is remembered of them stay as they are.
  // Every rank has the new values when it returns.
  void step(double lr);

  // The engine has laid out its buffers again.
  void follow();

 private:
  using Pieces = std::vector<std::unique_ptr<optim::Optimizer>>;  // as engine.owned()

  Pieces make() const;
  torch::Tensor whole(std::size_t group, const std::string& name) const;

  const config::OptimConfig config_;
  Engine& engine_;
  comm::Communicator& data_;
  std::vector<Group> layout_;  // for which the pieces are
  std::vector<Shard> owned_;
  Pieces pieces_;
};

}  // namespace lockstep::parallel::detail
