#pragma once

#include <string>
#include <vector>

namespace lockstep::hardware {

// The results of `lockstep gpus test` for one GPU.

struct GpuCheckStep {
  std::string what;     // "matrix product in bf16"
  std::string problem;  // "" when the answer was correct
  double seconds = 0;
};

struct GpuCheck {
  int index = 0;  // Gpu::index
  std::vector<GpuCheckStep> steps;

  bool passed() const;
  // Returns "matrix product in bf16: 3 of 4096 values are wrong; ...", "" if it passed.
  std::string problem() const;
};

}  // namespace lockstep::hardware
