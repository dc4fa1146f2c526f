#pragma once

#include <filesystem>

#include <torch/torch.h>

#include "lockstep/config/lora.h"

namespace lockstep::checkpoint {

// Loads the adapters of a folder that PEFT has written into a model that has such
// (models/lora.h). Throws Fault::config, with both values, for another rank or alpha,
// and for adapters of other layers.
void load_adapters(const std::filesystem::path& folder, torch::nn::Module& model,
                   const config::LoraConfig& config);

// Writes the adapters of a model as PEFT does. `base` is the model that they belong to.
void write_adapters(const std::filesystem::path& folder, const torch::nn::Module& model,
                    const config::LoraConfig& config, const std::string& base);

}  // namespace lockstep::checkpoint
