#include "lockstep/optim/detail/fused.h"

namespace lockstep::optim {

// adam adds the decay to the gradient, adamw takes it from the weight.
std::unique_ptr<Optimizer> make_adam(const config::OptimConfig& config,
                                     const torch::Tensor& values,
                                     std::vector<OptionRange> ranges) {
  const bool decoupled = config.name == config::Optimizer::adamw;
  return detail::make_fused(
      {.rule = decoupled ? kernels::Rule::adamw : kernels::Rule::adam,
       .states = {"mean", "square"},
       .corrects_bias = true,
       .beta1 = config.beta1,
       .beta2 = config.beta2,
       .eps = config.eps},
      values, std::move(ranges));
}

std::unique_ptr<Optimizer> make_adamw(const config::OptimConfig& config,
                                      const torch::Tensor& values,
                                      std::vector<OptionRange> ranges) {
  return make_adam(config, values, std::move(ranges));
}

}  // namespace lockstep::optim
