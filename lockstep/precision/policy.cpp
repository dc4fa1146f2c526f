#include "lockstep/precision/policy.h"

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include "lockstep/base/error.h"

namespace lockstep::precision {

void apply(const Policy& policy) {
  const bool tf32 = policy.mode == config::Precision::tf32;
  if (tf32 && policy.device.is_cpu()) {
    throw Error(Fault::config,
                "precision.mode: tf32 is a format of NVIDIA GPUs; on a CPU set "
                "precision.mode to fp32 or bf16");
  }
  if (policy.device.is_cuda()) {
    const auto products =
        tf32 ? at::Float32Precision::TF32 : at::Float32Precision::IEEE;
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA,
                                            at::Float32Op::MATMUL, products);
    at::globalContext().setFloat32Precision(at::Float32Backend::CUDA,
                                            at::Float32Op::CONV, products);
  }
}

AutocastScope::AutocastScope(const Policy& policy)
    : active_(policy.mode == config::Precision::bf16), device_(policy.device.type()) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, torch::kBFloat16);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  // The cache holds bfloat16 copies of the weights, which the next update makes stale.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, before_);
}

}  // namespace lockstep::precision
