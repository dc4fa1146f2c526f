#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/torch.h>

namespace lockstep::parallel::detail {

// Calls back around the accumulation of each parameter's gradient, for as long as it
// lives: `before` it is added to what is there, and `after`. On the thread that
// autograd uses; the argument is the parameter's index.
class GradientHooks {
 public:
  using Callback = std::function<void(std::size_t)>;

  GradientHooks(const std::vector<torch::Tensor>& parameters, Callback before,
                Callback after);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

 private:
  struct Callbacks {
    Callback before, after;
  };

  // The nodes outlive this object wherever a graph still holds them: they look here
  // whether somebody is still listening.
  std::shared_ptr<Callbacks> callbacks_;
  // A parameter holds its accumulator only weakly, and the hooks are the accumulator's.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
};

// Runs `callback` on the thread that called backward(), before it returns. Only inside
// a hook.
void at_the_end_of_backward(std::function<void()> callback);

}  // namespace lockstep::parallel::detail
