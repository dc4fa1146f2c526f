#include <ATen/ops/_fused_adamw.h>

#include "lockstep/optim/optimizer.h"

namespace lockstep::optim {
namespace {

class AdamW : public Optimizer {
 public:
  AdamW(const config::OptimConfig& config, const torch::Tensor& values)
      : config_(config),
        mean_{torch::zeros_like(values)},
        square_{torch::zeros_like(values)},
        step_{torch::zeros({}, values.options().dtype(torch::kFloat32))} {}

  void step(torch::Tensor& values, torch::Tensor& gradients, double lr) override {
    step_[0] += 1;  // on the device: nothing is read back
    values_[0] = values;
    gradients_[0] = gradients;
    at::_fused_adamw_(values_, gradients_, mean_, square_, /*max_exp_avg_sqs=*/{},
                      step_, lr, config_.beta1, config_.beta2, config_.weight_decay,
                      config_.eps,
                      /*amsgrad=*/false, /*maximize=*/false);
  }

  std::vector<std::pair<std::string, torch::Tensor>> state() const override {
    return {{"mean", mean_[0]}, {"square", square_[0]}, {"step", step_[0]}};
  }

 private:
  using List = std::vector<torch::Tensor>;  // of one: the fused op takes lists

  config::OptimConfig config_;
  List values_{1}, gradients_{1}, mean_, square_, step_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const config::OptimConfig& config,
                                      const torch::Tensor& values) {
  return std::make_unique<AdamW>(config, values);
}

}  // namespace lockstep::optim
