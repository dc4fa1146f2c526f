#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lockstep/kernels/update.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep::optim::detail {

// An optimizer that one rule of the kernels describes.
struct FusedRule {
  kernels::Rule rule = kernels::Rule::sgd;
  std::vector<std::string> states = {};  // names of its state for each element
  bool corrects_bias = false;            // it counts its steps
  double beta1 = 0;                      // momentum, in sgd
  double beta2 = 0;
  double eps = 0;
};

std::unique_ptr<Optimizer> make_fused(const FusedRule& rule,
                                      const torch::Tensor& values,
                                      std::vector<OptionRange> ranges);

// The buffers of an update, or one slice of each.
struct Buffers {
  torch::Tensor weights, rounded, gradients, first, second;  // may be undefined

  Buffers piece(std::int64_t begin, std::int64_t end) const;
};

// Updates by LibTorch's operators, each of which rounds as the kernels do: for a GPU
// without device code of ours, and as the reference of the kernels.
struct OperatorUpdate {
  kernels::Rule rule = kernels::Rule::sgd;
  kernels::Hyper hyper;
  const std::vector<OptionRange>& ranges;
  torch::Tensor factor;  // of the gradients; undefined: 1
  Buffers buffers;
};
void update_by_operators(const OperatorUpdate& update);

}  // namespace lockstep::optim::detail
