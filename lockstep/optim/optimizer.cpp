#include "lockstep/optim/optimizer.h"

#include "lockstep/base/error.h"

namespace lockstep::optim {

// Each is in the source of its optimizer.
#define LOCKSTEP_DECLARE(name, states)                                      \
  std::unique_ptr<Optimizer> make_##name(const config::OptimConfig& config, \
                                         const torch::Tensor& values,       \
                                         std::vector<OptionRange> ranges);
LOCKSTEP_OPTIMIZERS(LOCKSTEP_DECLARE)
#undef LOCKSTEP_DECLARE

std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values,
                                          std::vector<OptionRange> ranges) {
  switch (config.name) {
#define LOCKSTEP_CASE(name, states) \
  case config::Optimizer::name:     \
    return make_##name(config, values, std::move(ranges));
    LOCKSTEP_OPTIMIZERS(LOCKSTEP_CASE)
#undef LOCKSTEP_CASE
  }
  throw Error(Fault::internal, "optim: an optimizer without a constructor");
}

std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values) {
  return make_optimizer(config, values,
                        {{.end = values.numel(), .weight_decay = config.weight_decay}});
}

}  // namespace lockstep::optim
