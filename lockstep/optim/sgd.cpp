#include "lockstep/optim/detail/fused.h"

namespace lockstep::optim {

std::unique_ptr<Optimizer> make_sgd(const config::OptimConfig& config,
                                    const torch::Tensor& values,
                                    std::vector<OptionRange> ranges) {
  if (config.momentum == 0) {
    return detail::make_fused({.rule = kernels::Rule::sgd}, values, std::move(ranges));
  }
  return detail::make_fused(
      {.rule = config.nesterov ? kernels::Rule::nesterov : kernels::Rule::momentum,
       .states = {"momentum"},
       .beta1 = config.momentum},
      values, std::move(ranges));
}

}  // namespace lockstep::optim
