#pragma once

#include <cstdint>

#include "lockstep/kernels/dropout.h"
#include "lockstep/kernels/pack_columns.h"

// GELU in its tanh form, PyTorch's gelu(x, "tanh"). Numbers are f32 or bf16.
namespace lockstep::kernels {

struct Gelu {
  void* out = nullptr;
  const void* in = nullptr;
  Number number = Number::f32;
  std::int64_t count = 0;
};

// out = gradient * gelu'(in); and the sums of its columns, which are the gradient of
// the bias before it.
struct GeluBackward {
  void* out = nullptr;             // may be `gradient`
  const void* gradient = nullptr;  // by GELU's output
  const void* in = nullptr;
  Number number = Number::f32;
  std::int64_t rows = 0, width = 0;
  ColumnSums sums = {};
  float* workspace =
      nullptr;  // with `sums`: pack_columns_workspace(width); not on the CPU
};

void gelu_cpu(const Gelu& args);
void gelu_backward_cpu(const GeluBackward& args);

}  // namespace lockstep::kernels
