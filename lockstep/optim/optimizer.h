#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/optim.h"

namespace lockstep::optim {

// Changes parameters by their gradients: one fused operation over flat buffers.
class Optimizer {
 public:
  virtual ~Optimizer() = default;

  // `values` and `gradients` are the same buffers at every call.
  virtual void step(torch::Tensor& values, torch::Tensor& gradients, double lr) = 0;

  // Everything a checkpoint has to hold, by name.
  virtual std::vector<std::pair<std::string, torch::Tensor>> state() const = 0;
};

// The optimizer of a recipe for flat buffers like `values`.
std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values);

std::unique_ptr<Optimizer> make_adamw(const config::OptimConfig& config,
                                      const torch::Tensor& values);
std::unique_ptr<Optimizer> make_sgd(const config::OptimConfig& config,
                                    const torch::Tensor& values);

}  // namespace lockstep::optim
