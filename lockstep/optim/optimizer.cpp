#include "lockstep/optim/optimizer.h"

#include "lockstep/base/error.h"

namespace lockstep::optim {

std::unique_ptr<Optimizer> make_optimizer(const config::OptimConfig& config,
                                          const torch::Tensor& values) {
  switch (config.name) {
    case config::Optimizer::adamw:
      return make_adamw(config, values);
    case config::Optimizer::sgd:
      return make_sgd(config, values);
  }
  throw Error(Fault::internal, "optim: an optimizer without a constructor");
}

}  // namespace lockstep::optim
