#include <ATen/ops/_fused_sgd.h>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {
namespace {

class Sgd : public Optimizer {
 public:
  Sgd(const config::OptimConfig& config, const torch::Tensor& values)
      : config_(config) {
    if (config.momentum > 0) momentum_ = {torch::zeros_like(values)};
  }

  void step(torch::Tensor& values, torch::Tensor& gradients, double lr) override {
    values_[0] = values;
    gradients_[0] = gradients;
    at::_fused_sgd_(values_, gradients_, momentum_, config_.weight_decay,
                    config_.momentum, lr,
                    /*dampening=*/0, config_.nesterov, /*maximize=*/false, is_first_);
    is_first_ = false;
  }

  std::vector<std::pair<std::string, torch::Tensor>> state() const override {
    if (momentum_.empty()) return {};
    return {{"momentum", momentum_[0]}};
  }

 private:
  using List = std::vector<torch::Tensor>;  // of one: the fused op takes lists

  config::OptimConfig config_;
  List values_{1}, gradients_{1}, momentum_;
  bool is_first_ = true;
};

}  // namespace

std::unique_ptr<Optimizer> make_sgd(const config::OptimConfig& config,
                                    const torch::Tensor& values) {
  return std::make_unique<Sgd>(config, values);
}

}  // namespace lockstep::optim
