#pragma once

#include <filesystem>
#include <string>

#include <torch/torch.h>

#include "lockstep/checkpoint/load.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/config/lora.h"

namespace lockstep::checkpoint {

// Loads the adapters of a folder that PEFT has written into a model that has such
// (models/lora.h). Throws Fault::config, with both values, for another rank or alpha,
// and for adapters of other layers.
void load_adapters(const std::filesystem::path& folder, const LoadTarget& target,
                   const config::LoraConfig& config);

// Returns the adapters of a model, by the names that PEFT gives them.
NamedTensors adapters_of(const torch::nn::Module& model);

// Writes the adapters of a model as PEFT does.
struct AdaptedModel {
  const torch::nn::Module& model;
  const config::LoraConfig& config;
  std::string base = {};   // the model that the adapters belong to
  WholeTensor whole = {};  // as for write_safetensors()
};
void write_adapters(const std::filesystem::path& folder, const AdaptedModel& adapted);

}  // namespace lockstep::checkpoint
