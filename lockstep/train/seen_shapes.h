#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include <torch/torch.h>

#include "lockstep/data/batch.h"

namespace lockstep::train {

// Remembers what was computed before, because the first time of a shape takes long:
// libraries choose and tune their kernels for it. Allocates only for a new one.
class SeenShapes {
 public:
  // Returns whether a batch of these sizes, cut into pieces of `piece` samples, is new,
  // and remembers it.
  bool is_new(const data::Batch& batch, std::int64_t piece) {
    const auto tensors = batch.tensors();
    for (const auto& one : seen_) {
      if (one.piece == piece && is_of(one, tensors)) return false;
    }
    // Data whose shapes vary without end tunes nothing for each of them.
    constexpr std::size_t kMost = 256;
    if (seen_.size() == kMost) return false;
    Shape shape{.piece = piece};
    for (const auto* tensor : tensors) shape.sizes.push_back(tensor->sizes().vec());
    seen_.push_back(std::move(shape));
    return true;
  }

 private:
  struct Shape {
    std::vector<std::vector<std::int64_t>> sizes = {};
    std::int64_t piece = 0;
  };

  static bool is_of(const Shape& shape,
                    const data::TensorPointers<const torch::Tensor>& tensors) {
    return std::equal(shape.sizes.begin(), shape.sizes.end(), tensors.begin(),
                      tensors.end(), [](const auto& sizes, const auto* tensor) {
                        return tensor->sizes() == torch::IntArrayRef(sizes);
                      });
  }

  std::vector<Shape> seen_;
};

}  // namespace lockstep::train
