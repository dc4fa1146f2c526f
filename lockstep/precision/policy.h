#pragma once

#include <torch/torch.h>

#include "lockstep/config/precision.h"

namespace lockstep::precision {

// The dtypes that a device computes with.
struct Policy {
  config::Precision mode = config::Precision::fp32;
  torch::Device device = torch::kCPU;

  // Returns the dtype of the parameters and of the model's inputs.
  torch::Dtype dtype() const noexcept {
    if (mode == config::Precision::fp64) return torch::kFloat64;
    if (mode == config::Precision::bf16_params) return torch::kBFloat16;
    if (mode == config::Precision::fp16_params) return torch::kFloat16;
    return torch::kFloat32;
  }
  // Returns the dtype of the loss and of its inputs.
  torch::Dtype loss_dtype() const noexcept {
    return mode == config::Precision::fp64 ? torch::kFloat64 : torch::kFloat32;
  }
};

// Sets the process-wide switch: whether float32 products may use TF32. Throws
// Fault::config for a mode that the device can not do.
void apply(const Policy& policy);

// Moves a model to the policy's device and its parameters and buffers to its dtype.
// Batch norms stay float32 in bf16_params and fp16_params: their running statistics are
// sums of small steps, which 16 bits would lose.
void convert(torch::nn::Module& module, const Policy& policy);

// Operators run in the policy's dtype (autocast: bf16 and fp16) on this thread while it
// lives.
class AutocastScope {
 public:
  explicit AutocastScope(const Policy& policy);
  ~AutocastScope();
  AutocastScope(const AutocastScope&) = delete;
  AutocastScope& operator=(const AutocastScope&) = delete;

 private:
  bool active_;
  torch::DeviceType device_;
  bool was_enabled_ = false;
  torch::Dtype before_ = torch::kFloat32;
};

}  // namespace lockstep::precision
