#pragma once

#include <cstdint>

#include <torch/torch.h>

#include "lockstep/models/dropout.h"

namespace lockstep::models {

// The size of an adapter and the factor of its output.
struct LoraShape {
  std::int64_t rank = 0;
  double scale = 1;  // alpha / rank
  double dropout = 0;
};

// torch::nn::Linear, with the same names and initial values, that can have an adapter:
//
//   y = x W' + b + scale * dropout(x) A' B'
//
// A ("lora_A", rank x in) begins as PEFT's does, B ("lora_B", out x rank) with zeros.
// Use it in a module of your own to make that one adaptable (models/lora.h).
class LinearImpl : public torch::nn::LinearImpl {
 public:
  LinearImpl(std::int64_t in, std::int64_t out) : torch::nn::LinearImpl(in, out) {}

  torch::Tensor forward(const torch::Tensor& input);

  // Adds an adapter in the dtype and on the device of the weight. REQUIRES: it has
  // none.
  void add_lora(const LoraShape& shape);
  bool has_lora() const noexcept { return lora_A.defined(); }

  // Returns the weight with its adapter in it.
  torch::Tensor merged_weight() const;

  torch::Tensor lora_A, lora_B;  // undefined: no adapter

 private:
  LoraShape lora_;
  Dropout dropout_{nullptr};
};
TORCH_MODULE(Linear);

}  // namespace lockstep::models
