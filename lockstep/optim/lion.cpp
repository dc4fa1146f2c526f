#include "lockstep/optim/detail/fused.h"

namespace lockstep::optim {

// The sign of a mean of gradients: one state, and steps of one size for every weight.
std::unique_ptr<Optimizer> make_lion(const config::OptimConfig& config,
                                     const torch::Tensor& values,
                                     std::vector<OptionRange> ranges) {
  return detail::make_fused({.rule = kernels::Rule::lion,
                             .states = {"mean"},
                             .beta1 = config.beta1,
                             .beta2 = config.beta2},
                            values, std::move(ranges));
}

}  // namespace lockstep::optim
