#pragma once

#include <functional>

#include <torch/torch.h>

namespace lockstep::models {

using BlockFunction = std::function<torch::Tensor(const torch::Tensor&)>;

// Returns compute(input) and keeps only the input for the backward pass: there it is
// computed again (activation checkpointing). The bits are the same, forward and
// backward, as without: draws from generators (dropout) are repeated, and buffers
// (running statistics) change once.
//
// `block` owns the parameters, the buffers and the generators that `compute` uses. Its
// gradients come out of this one operation, as those of any other: hooks see each
// parameter once, and a block may be used twice.
//
// Lifetime: the block outlives the backward pass.
torch::Tensor recomputed(torch::nn::Module& block, const BlockFunction& compute,
                         const torch::Tensor& input);

}  // namespace lockstep::models
