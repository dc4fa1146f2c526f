#pragma once

#include <cstdint>

#include "lockstep/kernels/layer_norm.h"

namespace lockstep::kernels {

inline constexpr int kMostPacked = 3;

// Puts matrices side by side: out[i] = parts[0][i], parts[1][i], ...; and sums the
// columns of the result, which is the gradient of a bias. With one part that is `out`
// itself nothing is copied. Numbers are f32 or bf16; sums are float.
struct PackColumns {
  void* out = nullptr;
  const void* parts[kMostPacked] = {};
  int num_parts = 0;
  ColumnSums sums;
  float* workspace = nullptr;  // pack_columns_workspace(); not on the CPU
  Number number = Number::f32;
  std::int64_t rows = 0;
  std::int64_t width = 0;  // of one part
};

inline constexpr std::int64_t kPackParts = 64;  // that sums over rows are made in
// Returns floats, for a result that is `width` wide.
constexpr std::int64_t pack_columns_workspace(std::int64_t width) {
  return kPackParts * width;
}

void pack_columns_cpu(const PackColumns& args);

}  // namespace lockstep::kernels
