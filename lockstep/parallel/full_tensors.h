#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include <torch/torch.h>

#include "lockstep/parallel/engine.h"

// Whole tensors of a parameter, to look at and to set, whatever is sharded: for loops
// and tools of a user's own. All of it is collective, between steps, and in the same
// order on every rank.
namespace lockstep::parallel {

// Returns the index in engine.parameters() of a name; throws Fault::config, with a near
// one, if no trained parameter has it.
std::size_t find_parameter(const Engine& engine, std::string_view name);

// Returns a tensor of engine.owned()[index]'s elements: the gradients, or a state of
// the optimizer of that piece.
using PieceTensor = std::function<torch::Tensor(std::size_t index)>;

// Returns the elements of one parameter, with its shape; the result is the caller's.
torch::Tensor full_tensor(Engine& engine, std::size_t parameter,
                          const PieceTensor& piece);
// Puts a whole tensor into the pieces that ranks hold of it.
struct NewTensor {
  std::size_t parameter = 0;
  const torch::Tensor& value;
};
void set_full_tensor(Engine& engine, const NewTensor& whole, const PieceTensor& piece);

// The value of a parameter.
torch::Tensor full_parameter(Engine& engine, std::string_view name);
void set_full_parameter(Engine& engine, std::string_view name,
                        const torch::Tensor& value);

// Its gradient, of the global batch, between finish() and the next zero_gradients().
torch::Tensor full_gradient(Engine& engine, std::string_view name);
void set_full_gradient(Engine& engine, std::string_view name,
                       const torch::Tensor& value);

}  // namespace lockstep::parallel
