#pragma once

#include <cstdint>

#include "lockstep/kernels/dropout.h"

namespace lockstep::kernels {

struct AddRelu {
  void* out = nullptr;
  const void* a = nullptr;
  const void* b = nullptr;
  Number number = Number::f32;
  std::int64_t count = 0;
};

// Returns relu(a + b) in one pass over memory where LibTorch has two. The bits are the
// same: the sum is rounded before it is compared, and a NaN stays one.
//
// REQUIRES: fits_add_relu(a, b)
at::Tensor add_relu(const at::Tensor& a, const at::Tensor& b);

// Returns whether there is a kernel for these: on a GPU, with device code, both dense
// and alike in shape, strides and dtype.
bool fits_add_relu(const at::Tensor& a, const at::Tensor& b);

}  // namespace lockstep::kernels
