#pragma once

#include <span>

#include <torch/torch.h>

namespace lockstep::kernels {

struct ScaleShift {
  float scale = 1;
  float shift = 0;
};

// Computes out = scale * in + shift, in one pass, with one rounding (fused
// multiply-add) on every device, so that a model sees the same bits wherever it runs.
//
// `in` is uint8, `out` is float32; both are dense, on one device, with as many
// elements, and are read in the order of memory.
void normalize(torch::Tensor& out, const torch::Tensor& in, const ScaleShift& all);

// Normalizes with a pair for each channel: `in` and `out` are contiguous (B, C, ...),
// with C pairs, 16 at most.
void normalize(torch::Tensor& out, const torch::Tensor& in,
               std::span<const ScaleShift> channels);

}  // namespace lockstep::kernels
