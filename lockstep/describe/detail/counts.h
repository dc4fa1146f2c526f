#pragma once

#include <cstdint>

#include <torch/torch.h>

namespace lockstep::describe::detail {

inline std::int64_t count_parameters(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

inline std::int64_t count_frozen(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) {
    if (!parameter.requires_grad()) count += parameter.numel();
  }
  return count;
}

inline std::int64_t count_buffers(const torch::nn::Module& module) {
  std::int64_t bytes = 0;
  for (const auto& buffer : module.buffers()) {
    bytes += static_cast<std::int64_t>(buffer.nbytes());
  }
  return bytes;
}

}  // namespace lockstep::describe::detail
