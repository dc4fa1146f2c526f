// Strategy single: flat buffers and an optimizer, nothing else.
#include "lockstep/parallel/detail/flat_buffers.h"
#include "lockstep/parallel/detail/flat_optimizers.h"
#include "lockstep/parallel/detail/strategies.h"

namespace lockstep::parallel::detail {
namespace {

class Single : public Strategy {
 public:
  Single(const config::Config& config, torch::nn::Module& module, comm::World& world)
      : parameters_(trainable_parameters(module)),
        buffers_(parameters_,
                 plan_layout(parameters_, reversed_order(parameters_.size()), {}),
                 world.data()),
        optimizers_(config.optim, buffers_.groups(), buffers_.all_values()) {
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      parameters_[i].tensor.mutable_grad() = buffers_.gradient_of(i);
    }
  }

  std::string_view name() const noexcept override { return "single"; }
  void begin_step() override {
    for (auto& gradients : buffers_.all_gradients()) gradients.zero_();
  }
  void backward(const torch::Tensor& loss, bool) override { loss.backward(); }
  void finish() override {}
  void update(double lr) override {
    optimizers_.step(buffers_.all_values(), buffers_.all_gradients(), lr);
  }
  void share_buffers() override {}
  const std::vector<Parameter>& parameters() const noexcept override {
    return parameters_;
  }

 private:
  std::vector<Parameter> parameters_;
  FlatBuffers buffers_;
  FlatOptimizers optimizers_;
};

}  // namespace

std::unique_ptr<Strategy> make_single(const config::Config& config,
                                      torch::nn::Module& module, comm::World& world) {
  return std::make_unique<Single>(config, module, world);
}

}  // namespace lockstep::parallel::detail
