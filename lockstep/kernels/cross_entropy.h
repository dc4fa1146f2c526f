#pragma once

#include <cstdint>

#include "lockstep/kernels/dropout.h"

namespace lockstep::kernels {

// Softmax cross-entropy of rows of logits, and its gradient in their place: one read
// and one write of them. Numbers are f32 or bf16.
//
//   losses[i] = log(sum(exp(logits[i]))) - logits[i][targets[i]]
//   logits[i] = scale * (softmax(logits[i]) - one at targets[i])
//
// Only the first `classes` columns count; the others, of a vocabulary that was filled
// up, get a gradient of 0. So does a row whose target is no class; its loss is 0.
struct CrossEntropy {
  void* logits = nullptr;
  const std::int64_t* targets = nullptr;
  float* losses = nullptr;
  Number number = Number::f32;
  std::int64_t rows = 0;
  std::int64_t columns = 0;  // in memory
  std::int64_t classes = 0;
  float scale = 1;
  const float* scale_at = nullptr;  // where the logits are; multiplies `scale`, or null
};

void cross_entropy_cpu(const CrossEntropy& args);

}  // namespace lockstep::kernels
