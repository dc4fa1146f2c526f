#include "lockstep/parallel/detail/hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/utils/lambda_post_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::parallel::detail {
namespace {

using torch::autograd::variable_list;

class BeforeHook : public torch::autograd::FunctionPreHook {
 public:
  explicit BeforeHook(std::function<void()> call) : call_(std::move(call)) {}

  variable_list operator()(const variable_list& gradients) override {
    call_();
    return gradients;
  }

 private:
  std::function<void()> call_;
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<torch::Tensor>& parameters,
                             Callback before, Callback after)
    : callbacks_(
          std::make_shared<Callbacks>(Callbacks{std::move(before), std::move(after)})) {
  const std::weak_ptr<Callbacks> listening = callbacks_;
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto node = torch::autograd::impl::grad_accumulator(parameters[i]);
    node->add_pre_hook(std::make_unique<BeforeHook>([listening, i] {
      if (const auto callbacks = listening.lock()) callbacks->before(i);
    }));
    node->add_post_hook(std::make_unique<torch::autograd::utils::LambdaPostHook>(
        [listening, i](const variable_list& outputs, const variable_list&) {
          if (const auto callbacks = listening.lock()) callbacks->after(i);
          return outputs;
        }));
    accumulators_.push_back(std::move(node));
  }
}

GradientHooks::~GradientHooks() = default;

void at_the_end_of_backward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

}  // namespace lockstep::parallel::detail
