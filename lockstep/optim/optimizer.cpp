#include "lockstep/optim/optimizer.h"

#include "lockstep/base/error.h"

namespace lockstep::optim {

std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values,
                                          std::vector<OptionRange> ranges) {
  switch (config.name) {
    case config::Optimizer::adamw:
    case config::Optimizer::adam:
      return make_adam(config, values, std::move(ranges));
    case config::Optimizer::sgd:
      return make_sgd(config, values, std::move(ranges));
    case config::Optimizer::lion:
      return make_lion(config, values, std::move(ranges));
  }
  throw Error(Fault::internal, "optim: an optimizer without a constructor");
}

std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values) {
  return make_optimizer(config, values,
                        {{.end = values.numel(), .weight_decay = config.weight_decay}});
}

}  // namespace lockstep::optim
