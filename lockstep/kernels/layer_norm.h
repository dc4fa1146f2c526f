#pragma once

#include <cstdint>

#include "lockstep/kernels/dropout.h"

// LayerNorm of the rows of a matrix, together with the residual connection around it.
// Numbers are f32 or bf16; sums and statistics are float.
namespace lockstep::kernels {

// out = (sum - mean) * inverse * weight + bias, with sum = in + added, which is kept.
struct LayerNorm {
  void* out = nullptr;
  const void* in = nullptr;
  const void* added = nullptr;  // null: `in` alone is normalised
  void* sum = nullptr;          // with `added`; rounded before it is normalised
  const void* weight = nullptr;
  const void* bias = nullptr;
  float* mean = nullptr;     // of each row
  float* inverse = nullptr;  // 1 / sqrt(variance + eps) of each row
  Number number = Number::f32;
  std::int64_t rows = 0, width = 0;
  float eps = 1e-5F;
};

// The sum of a column goes to `at`, or is added to what is there.
struct ColumnSums {
  void* at = nullptr;  // null: not wanted
  bool adds = false;
};

// out = the gradient by the normalised sum + through.
struct LayerNormBackward {
  void* out = nullptr;             // may be `through` or `gradient`
  const void* gradient = nullptr;  // by the LayerNorm's output
  const void* through = nullptr;   // that of the residual connection, or null
  const void* in = nullptr;        // what was normalised
  const void* weight = nullptr;
  const float* mean = nullptr;
  const float* inverse = nullptr;
  ColumnSums weight_gradient, bias_gradient;
  // The columns of `out`: the gradient of a bias that was part of the sum.
  ColumnSums out_sums;
  float* workspace = nullptr;  // layer_norm_workspace(width) floats; not on the CPU
  Number number = Number::f32;
  std::int64_t rows = 0, width = 0;
};

// Sums over rows are made in this many parts and then added in one order, without
// atomics: the same bits every time.
inline constexpr std::int64_t kLayerNormParts = 264;
constexpr std::int64_t layer_norm_workspace(std::int64_t width) {
  return kLayerNormParts * 3 * width;
}
// The backward kernel keeps a row in registers.
inline constexpr std::int64_t kWidestLayerNorm = 4096;

void layer_norm_cpu(const LayerNorm& args);
void layer_norm_backward_cpu(const LayerNormBackward& args);

}  // namespace lockstep::kernels
