#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

namespace lockstep::optim {

// The trainable parameters of a module, moved into one flat buffer of which each
// parameter is a view; their gradients are views of a second one. An optimizer then
// updates one tensor instead of a list, and zeroing the gradients is one fill.
//
// Each parameter keeps its shape, strides (channels-last too) and identity; it starts
// at a multiple of 64 bytes. Elements between parameters are zero and stay so.
//
// A parameter that a step does not use has a gradient of zeros, which an optimizer
// takes for one; where that happens, parallel::Engine and parallel::update() leave it
// alone.
//
// Lifetime: Module::zero_grad() would drop the views: use zero_gradients().
class FlatParameters {
 public:
  // Throws Fault::config if parameters differ in dtype or device, or overlap in memory.
  explicit FlatParameters(torch::nn::Module& module);

  torch::Tensor& values() noexcept { return values_; }
  torch::Tensor& gradients() noexcept { return gradients_; }
  const torch::Tensor& gradients() const noexcept { return gradients_; }
  std::int64_t num_parameters() const noexcept { return num_parameters_; }

  void zero_gradients();

 private:
  struct Entry {
    std::string name;
    torch::Tensor parameter;
    std::int64_t offset = 0;
  };

  torch::Tensor view(const torch::Tensor& flat, const Entry& entry) const;

  std::vector<Entry> entries_;
  torch::Tensor values_, gradients_;
  std::int64_t num_parameters_ = 0;
};

}  // namespace lockstep::optim
