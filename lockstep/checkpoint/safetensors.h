#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace lockstep::checkpoint {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Returns the parameters and buffers of a module by name, as Python's state_dict()
// names them.
NamedTensors state_of(const torch::nn::Module& module);

// Writes the tensors as one safetensors file, atomically; rows first, whatever their
// layout in memory. Holds one tensor in host memory at a time. Names are distinct.
void write_safetensors(const std::filesystem::path& path, NamedTensors tensors);

}  // namespace lockstep::checkpoint
