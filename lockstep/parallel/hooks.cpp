#include "lockstep/parallel/detail/hooks.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

namespace lockstep::parallel::detail {
namespace {

using torch::autograd::variable_list;

class Hook {
 public:
  Hook(std::shared_ptr<GradientHooks::Callbacks> callbacks, std::size_t parameter)
      : callbacks_(std::move(callbacks)), parameter_(parameter) {}

 protected:
  std::shared_ptr<GradientHooks::Callbacks> callbacks_;
  std::size_t parameter_;
};

// A function whose backward pass has no gradient for one of its inputs, as that of a
// block which is computed again and has not used the parameter, hands on an undefined
// tensor. Autograd leaves grad() as it is then: the parameter took no part.
bool is_one(const variable_list& gradients) {
  return gradients[0].defined();
}

class BeforeHook : public torch::autograd::FunctionPreHook, Hook {
 public:
  using Hook::Hook;

  variable_list operator()(const variable_list& gradients) override {
    if (callbacks_->listening && is_one(gradients)) callbacks_->before(parameter_);
    return gradients;
  }
};

class AfterHook : public torch::autograd::FunctionPostHook, Hook {
 public:
  using Hook::Hook;

  variable_list operator()(const variable_list& outputs,
                           const variable_list& gradients) override {
    if (callbacks_->listening && is_one(gradients)) callbacks_->after(parameter_);
    return outputs;
  }
};

}  // namespace

GradientHooks::GradientHooks(const std::vector<torch::Tensor>& parameters,
                             Callback before, Callback after)
    : callbacks_(
          std::make_shared<Callbacks>(Callbacks{std::move(before), std::move(after)})) {
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    auto node = torch::autograd::impl::grad_accumulator(parameters[i]);
    node->add_pre_hook(std::make_unique<BeforeHook>(callbacks_, i));
    node->add_post_hook(std::make_unique<AfterHook>(callbacks_, i));
    accumulators_.push_back(std::move(node));
  }
}

GradientHooks::~GradientHooks() {
  callbacks_->listening = false;
}

void at_the_end_of_backward(std::function<void()> callback) {
  torch::autograd::Engine::get_default_engine().queue_callback(std::move(callback));
}

}  // namespace lockstep::parallel::detail
