#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace lockstep::checkpoint {

using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Returns the parameters and buffers of a module by name, as Python's state_dict()
// names them.
NamedTensors state_of(const torch::nn::Module& module);

// Returns a tensor with its elements; they may not have been there before.
using WholeTensor = std::function<torch::Tensor(const torch::Tensor&)>;

// Writes the tensors as one safetensors file, atomically; rows first, whatever their
// layout in memory. Holds one tensor in host memory at a time. Names are distinct.
// `whole` is asked for each tensor when its turn comes; empty: they are whole.
void write_safetensors(const std::filesystem::path& path, const NamedTensors& tensors,
                       const WholeTensor& whole = {});

// Asks for the tensors in the order of such a file, for a rank that has to take part in
// it and writes nothing.
void visit_in_file_order(const NamedTensors& tensors, const WholeTensor& whole);

}  // namespace lockstep::checkpoint
