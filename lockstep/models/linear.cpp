#include "lockstep/models/linear.h"

#include <cmath>

#include "lockstep/base/error.h"

namespace lockstep::models {

torch::Tensor LinearImpl::forward(const torch::Tensor& input) {
  const auto output = torch::nn::LinearImpl::forward(input);
  if (!has_lora()) return output;
  const auto inner = torch::linear(dropout_ ? dropout_(input) : input, lora_A);
  return output + torch::linear(inner, lora_B) * lora_.scale;
}

void LinearImpl::add_lora(const LoraShape& shape) {
  LOCKSTEP_CHECK(!has_lora() && shape.rank > 0, shape.rank);
  lora_ = shape;
  const auto like = weight.options().requires_grad(false);
  lora_A = register_parameter("lora_A",
                              torch::empty({shape.rank, options.in_features()}, like));
  lora_B = register_parameter("lora_B",
                              torch::zeros({options.out_features(), shape.rank}, like));
  torch::nn::init::kaiming_uniform_(lora_A, std::sqrt(5.0));
  if (shape.dropout > 0) {
    dropout_ = register_module("lora_dropout", Dropout(shape.dropout));
  }
}

torch::Tensor LinearImpl::merged_weight() const {
  if (!has_lora()) return weight;
  const torch::NoGradGuard no_grad;
  return weight + torch::matmul(lora_B, lora_A) * lora_.scale;
}

}  // namespace lockstep::models
