#pragma once

#include <vector>

#include <torch/torch.h>

namespace lockstep::bench {

// The parameters of a module and their gradients as views of two flat buffers that
// autograd adds to: a step without an engine, to compare with.
class FlatParameters {
 public:
  explicit FlatParameters(torch::nn::Module& module) {
    const torch::NoGradGuard no_grad;
    const auto parameters = module.parameters();
    std::int64_t total = 0;
    for (const auto& one : parameters) total += one.numel();
    values_ = torch::empty({total}, parameters.front().options());
    gradients_ = torch::zeros_like(values_);
    std::int64_t offset = 0;
    for (auto one : parameters) {
      const auto view = [&](const torch::Tensor& flat) {
        return flat.as_strided(one.sizes(), one.strides(), offset);
      };
      const auto value = view(values_);
      value.copy_(one);
      one.set_data(value);
      one.mutable_grad() = view(gradients_);
      offset += one.numel();
    }
  }

  torch::Tensor& values() noexcept { return values_; }
  torch::Tensor& gradients() noexcept { return gradients_; }
  void zero_gradients() { gradients_.zero_(); }

 private:
  torch::Tensor values_, gradients_;
};

}  // namespace lockstep::bench
