#include "lockstep/optim/clip.h"

#include <algorithm>
#include <cmath>

#include <c10/core/DeviceGuard.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/norm.h"

namespace lockstep::optim {
namespace {

constexpr std::int64_t kBlocksPerThread = 16;  // below it a second thread costs more

kernels::Element element_of(const torch::Tensor& flat) {
  switch (flat.scalar_type()) {
    case torch::kFloat32:
      return kernels::Element::f32;
    case torch::kFloat64:
      return kernels::Element::f64;
    case torch::kBFloat16:
      return kernels::Element::bf16;
    case torch::kFloat16:
      return kernels::Element::f16;
    default:
      throw Error(Fault::internal, "optim: no norm of ", flat.scalar_type());
  }
}

}  // namespace

SquaredNorm::SquaredNorm(const torch::Tensor& flat) {
  element_of(flat);
  const auto options = torch::dtype(torch::kFloat64).device(flat.device());
  workspace_ = torch::empty({kernels::norm_workspace(flat.numel())}, options);
  sum_ = torch::zeros({}, options);
  if (flat.device().is_cpu() && flat.numel() > 0) {
    workers_.emplace(kernels::norm_blocks(flat.numel()), kBlocksPerThread);
  }
}

const torch::Tensor& SquaredNorm::of(const torch::Tensor& flat) {
  const torch::NoGradGuard no_grad;
  LOCKSTEP_CHECK(flat.is_contiguous() && flat.device() == sum_.device());
  LOCKSTEP_CHECK(kernels::norm_workspace(flat.numel()) == workspace_.numel());
  if (flat.numel() == 0) return sum_;
  const kernels::SquaredNormArgs args{.in = flat.const_data_ptr(),
                                      .element = element_of(flat),
                                      .num_elements = flat.numel(),
                                      .workspace = workspace_.data_ptr<double>(),
                                      .out = sum_.data_ptr<double>()};
  if (flat.device().is_cpu()) {
    kernels::squared_norm_cpu(args, *workers_);
  } else if (kernels::cuda_available()) {
    const c10::DeviceGuard guard(flat.device());
    kernels::squared_norm_cuda(args, kernels::current_stream(flat.device().index()));
  } else {
    sum_.copy_(flat.to(torch::kFloat64).square().sum());
  }
  return sum_;
}

NormClip::NormClip(double most, const torch::Device& device)
    : most_(most),
      both_(torch::ones({2}, torch::dtype(torch::kFloat64).device(device))),
      norm_(both_.select(0, 0)),
      factor_(both_.select(0, 1)) {}

void NormClip::compute(const torch::Tensor& squared, double gradient_scale) {
  const torch::NoGradGuard no_grad;
  LOCKSTEP_CHECK(squared.scalar_type() == torch::kFloat64 && squared.numel() == 1 &&
                 squared.device() == both_.device());
  if (both_.device().is_cpu()) {
    const double norm = gradient_scale * std::sqrt(*squared.data_ptr<double>());
    const double factor = most_ / (norm + kernels::kNormFloor);
    double* out = both_.data_ptr<double>();
    out[0] = norm;
    out[1] = most_ > 0 && !(factor > 1) ? factor : 1;  // a NaN stays one
  } else if (kernels::cuda_available()) {
    const c10::DeviceGuard guard(both_.device());
    kernels::clip_factor_cuda({.squared = squared.data_ptr<double>(),
                               .out = both_.data_ptr<double>(),
                               .gradient_scale = gradient_scale,
                               .most = most_},
                              kernels::current_stream(both_.device().index()));
  } else {
    norm_.copy_(squared.sqrt() * gradient_scale);
    if (most_ > 0) {
      factor_.copy_(
          (norm_ + kernels::kNormFloor).reciprocal().mul_(most_).clamp_max_(1));
    }
  }
}

void NormClip::compute(const torch::Tensor& squared, const double* scale_at) {
  if (both_.device().is_cpu()) return compute(squared, *scale_at);
  LOCKSTEP_CHECK(kernels::cuda_available());
  const c10::DeviceGuard guard(both_.device());
  kernels::clip_factor_cuda({.squared = squared.data_ptr<double>(),
                             .out = both_.data_ptr<double>(),
                             .scale_at = scale_at,
                             .most = most_},
                            kernels::current_stream(both_.device().index()));
}

}  // namespace lockstep::optim
