#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/storage/layout.h"

namespace lockstep::checkpoint {

// Returns the name of a dtype in safetensors: "F32".
std::string dtype_name(torch::Dtype dtype);

// Reverses it; Fault::io for a name that LibTorch has no dtype for.
torch::Dtype dtype_of_name(const std::string& name);

// The elements of a named tensor in this process: [begin, begin + data.numel()) of the
// whole tensor, counted in `order`.
struct Piece {
  std::string name;
  torch::Tensor data;  // one dimension, contiguous
  storage::Shape shape;
  storage::Order order;
  std::int64_t begin = 0;
  bool changes_in_forward = false;  // running statistics, for example

  bool is_whole() const;
};
using Pieces = std::vector<Piece>;

// Returns the order in which a dense tensor's elements are in memory; empty: row-major.
storage::Order order_of(const torch::Tensor& tensor);

// Returns all of a dense tensor.
Piece whole_piece(std::string name, const torch::Tensor& tensor,
                  bool changes_in_forward = false);

// A tensor that a checkpoint must have for a model to go on, whichever rank holds it.
struct Expected {
  std::string name;
  std::string dtype;
  storage::Shape shape;
};

}  // namespace lockstep::checkpoint
