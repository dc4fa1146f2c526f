#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace lockstep::models {

// A square window.
struct PoolWindow {
  std::int64_t size, stride;
  std::int64_t padding = 0;
};

// Returns the maxima over height and width of (B, C, H, W). Both dimensions are named:
// PyTorch's exporter to ONNX takes a program of a model only like this.
inline torch::Tensor max_pool(const torch::Tensor& x, const PoolWindow& window) {
  const auto& [size, stride, padding] = window;
  return torch::max_pool2d(x, {size, size}, {stride, stride}, {padding, padding},
                           {1, 1});
}

}  // namespace lockstep::models
