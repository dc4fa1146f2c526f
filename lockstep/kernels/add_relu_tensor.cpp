#include <ATen/ATen.h>
#include <c10/core/DeviceGuard.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/add_relu.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/number.h"

namespace lockstep::kernels {

bool fits_add_relu(const at::Tensor& a, const at::Tensor& b) {
  return a.is_cuda() && cuda_available() && a.device() == b.device() &&
         a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes() &&
         a.strides() == b.strides() && a.is_non_overlapping_and_dense() &&
         detail::number_of(a.scalar_type()).has_value();
}

at::Tensor add_relu(const at::Tensor& a, const at::Tensor& b) {
  LOCKSTEP_CHECK(fits_add_relu(a, b));
  auto out = at::empty_like(a);
  const c10::DeviceGuard guard(a.device());
  add_relu_cuda({.out = out.mutable_data_ptr(),
                 .a = a.const_data_ptr(),
                 .b = b.const_data_ptr(),
                 .number = *detail::number_of(a.scalar_type()),
                 .count = a.numel()},
                current_stream(a.device().index()));
  return out;
}

}  // namespace lockstep::kernels
