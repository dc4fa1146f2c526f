#pragma once

#include <torch/torch.h>

namespace lockstep::precision {

// Returns false for a tensor that has a shape and no memory: one of a model whose
// values are drawn later (models::DeferredInit), or are sharded and freed.
inline bool has_memory(const torch::Tensor& tensor) {
  return tensor.numel() == 0 || tensor.storage().data() != nullptr;
}

// Returns such a tensor: of the given dtype and device, and with the sizes and strides
// of `like`.
inline torch::Tensor without_memory(const torch::Tensor& like,
                                    const torch::TensorOptions& options) {
  auto tensor = torch::empty({0}, options);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides());
  return tensor;
}

}  // namespace lockstep::precision
