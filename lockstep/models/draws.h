#pragma once

#include <utility>
#include <vector>

#include <torch/torch.h>

namespace lockstep::models {

// Generators with their states at one moment, to which they can be put back.
class Draws {
 public:
  // Takes each generator once; calls take().
  explicit Draws(const std::vector<at::Generator>& generators);

  void take();
  void restore() const;

  // Returns whether nothing has been drawn since.
  bool are_current() const;

 private:
  std::vector<std::pair<at::Generator, torch::Tensor>> places_;
};

}  // namespace lockstep::models
