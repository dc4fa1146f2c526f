#pragma once

#include <functional>

#include <torch/torch.h>

namespace lockstep::models {

using BlockFunction = std::function<torch::Tensor(const torch::Tensor&)>;

// compute(input), of which nothing is kept for the backward pass but the input: there
// it is computed again (activation checkpointing). Same bits, forward and backward, as
// without: what it draws from generators (dropout) is drawn again, and buffers (running
// statistics) change once.
//
// `block` owns the parameters, the buffers and the generators that `compute` uses. Its
// gradients come out of this one operation, as those of any other: hooks see each
// parameter once, and a block may be used twice.
//
// Lifetime: the block outlives the backward pass.
torch::Tensor recomputed(torch::nn::Module& block, const BlockFunction& compute,
                         const torch::Tensor& input);

}  // namespace lockstep::models
