#pragma once

#include <torch/torch.h>

namespace lockstep::kernels {

// out = scale * in + shift, in one pass, with one rounding (fused multiply-add) on
// every device, so that a model sees the same bits wherever it runs.
//
// `in` is uint8, `out` is float32; both are dense, on one device, with as many
// elements, and are read in the order of memory.
void normalize(torch::Tensor& out, const torch::Tensor& in, float scale, float shift);

}  // namespace lockstep::kernels
