#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/config/optim.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/layout.h"

namespace lockstep::parallel::detail {

// One optimizer for each flat buffer; what they remember follows the layout.
class FlatOptimizers {
 public:
  FlatOptimizers(const config::OptimConfig& config, std::vector<Group> layout,
                 const std::vector<torch::Tensor>& values);

  // `values` and `gradients` by group. The parameters in `untouched` and what is
  // remembered of them stay as they are.
  void step(std::vector<torch::Tensor>& values, std::vector<torch::Tensor>& gradients,
            double lr, const std::vector<std::size_t>& untouched = {});

  // The parameters have moved within the buffers.
  void follow(const std::vector<Group>& layout);

 private:
  std::vector<Group> layout_;
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers_;  // by group
};

}  // namespace lockstep::parallel::detail
