#pragma once

#include <functional>
#include <memory>
#include <vector>

#include <torch/torch.h>

namespace lockstep::parallel::detail {

// Calls back around the accumulation of each parameter's gradient, for as long as it
// lives: `before` it is added to what is there, and `after`. They run on autograd's
// thread; the argument is the parameter's index. An exception ends the backward pass
// and reaches its caller.
//
// Threads: not destroyed while a backward pass runs.
class GradientHooks {
 public:
  using Callback = std::function<void(std::size_t)>;

  GradientHooks(const std::vector<torch::Tensor>& parameters, Callback before,
                Callback after);
  ~GradientHooks();
  GradientHooks(const GradientHooks&) = delete;
  GradientHooks& operator=(const GradientHooks&) = delete;

  struct Callbacks {
    Callback before, after;
    bool listening = true;
  };

 private:
  // The nodes outlive this object wherever a graph still holds them: they look here
  // whether the callbacks are still alive.
  std::shared_ptr<Callbacks> callbacks_;
  // A parameter holds its accumulator only weakly, and the hooks are the accumulator's.
  std::vector<std::shared_ptr<torch::autograd::Node>> accumulators_;
};

// Runs `callback` when the backward pass is over and before backward() returns, with
// the caller's streams; not if the pass fails. It runs on the thread that finishes the
// graph: the calling one for tensors of the CPU, but for those of a GPU autograd's one
// thread for the device, which serves the ranks of all threads that share it. So it
// must not wait for another rank of this process there. Call it only inside a hook.
void at_the_end_of_backward(std::function<void()> callback);

}  // namespace lockstep::parallel::detail
