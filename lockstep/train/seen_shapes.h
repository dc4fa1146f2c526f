#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

namespace lockstep::train {

// Remembers what was computed before, because the first time of a shape takes long:
// libraries choose and tune their kernels for it. Allocates only for a new one.
class SeenShapes {
 public:
  // Returns whether a batch of these sizes, cut into pieces of `piece` samples, is new,
  // and remembers it.
  bool is_new(torch::IntArrayRef sizes, std::int64_t piece) {
    for (const auto& one : seen_) {
      if (one.piece == piece && sizes == torch::IntArrayRef(one.sizes)) return false;
    }
    // Data whose shapes vary without end tunes nothing for each of them.
    constexpr std::size_t kMost = 256;
    if (seen_.size() == kMost) return false;
    seen_.push_back({sizes.vec(), piece});
    return true;
  }

 private:
  struct Shape {
    std::vector<std::int64_t> sizes;
    std::int64_t piece = 0;
  };
  std::vector<Shape> seen_;
};

}  // namespace lockstep::train
