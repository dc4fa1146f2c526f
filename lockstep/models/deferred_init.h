#pragma once

#include <functional>
#include <memory>

#include <torch/torch.h>

namespace lockstep::models {

namespace detail {
class InitRecorder;
}

// Builds a module of any size without memory for its tensors, and draws their initial
// values later, one tensor at a time, in the order in which the constructor would have:
// the same seed gives the same values.
//
//   DeferredInit init;
//   auto net = init.build([] { return std::make_shared<Net>(); });
//   init.replay([&](const auto& tensor, const auto& value) { ... keep a shard ... });
//
// A constructor may initialise tensors by operators that change them in place
// (torch::nn::init and such); what needs values while it is built, or writes through
// pointers, can not be deferred.
//
// Threads: one; build() and replay() draw from torch's default generator.
class DeferredInit {
 public:
  DeferredInit();
  ~DeferredInit();
  DeferredInit(const DeferredInit&) = delete;
  DeferredInit& operator=(const DeferredInit&) = delete;

  // Returns make(). Its tensors are of the host and have shapes and no memory; reading
  // or writing one before replay() is undefined, but for set_data(). Throws
  // Fault::config, naming the operator, for one that needs values.
  template <typename Make>
  auto build(const Make& make) -> decltype(make()) {
    decltype(make()) made;
    record([&] { made = make(); });
    remember(*made);
    return made;
  }

  // Calls `take` with each parameter and buffer of the module and its initial value,
  // which has the shape that it was built with. The value is gone afterwards.
  using Take = std::function<void(const torch::Tensor& tensor, const torch::Tensor&)>;
  void replay(const Take& take);

 private:
  void record(const std::function<void()>& make);
  void remember(const torch::nn::Module& module);

  std::unique_ptr<detail::InitRecorder> recorder_;
};

}  // namespace lockstep::models
