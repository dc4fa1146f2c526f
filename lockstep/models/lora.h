#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include <torch/torch.h>

#include "lockstep/config/lora.h"

namespace lockstep::models {

// Adds an adapter to each Linear (models/linear.h) whose name fits lora.targets, and
// freezes all other parameters. Returns the names of the adapted layers. The initial
// values come from torch's default generator. Throws Fault::config, with the names of
// the layers that could be adapted, for a pattern that fits none of them.
std::vector<std::string> add_lora(torch::nn::Module& model,
                                  const config::LoraConfig& config);

bool has_lora(const torch::nn::Module& model);

// A layer that can have an adapter.
struct LoraLayer {
  std::string name;
  bool is_adapted = false;
};
std::vector<LoraLayer> lora_layers(const torch::nn::Module& model);

// Returns whether this is a parameter of an adapter: "h.0.attn.c_attn.lora_A".
bool is_lora(const std::string& parameter);
// The patterns of these names, as checkpoint.allow_missing has them.
inline constexpr std::string_view kLoraNames = "*.lora_A,*.lora_B";

// A tensor of a model with its adapter in it, which is computed when it is asked for.
struct MergedTensor {
  std::string name;
  std::function<torch::Tensor()> value;
};
// Returns parameters and buffers as merged_state() does, for a model whose parameters
// are there for a while only. Lifetime: the model outlives them.
std::vector<MergedTensor> merged_tensors(const torch::nn::Module& model);

// Returns parameters and buffers by name with the adapters in the weights: what a model
// without adapters has.
std::vector<std::pair<std::string, torch::Tensor>> merged_state(
    const torch::nn::Module& model);

}  // namespace lockstep::models
