#include "lockstep/precision/policy.h"

#include <algorithm>

#include <ATen/Context.h>
#include <ATen/autocast_mode.h>

#include "lockstep/base/error.h"
#include "lockstep/precision/without_memory.h"

namespace lockstep::precision {
namespace {

bool is_batch_norm(const torch::nn::Module& module) {
  return module.as<torch::nn::BatchNorm1d>() != nullptr ||
         module.as<torch::nn::BatchNorm2d>() != nullptr ||
         module.as<torch::nn::BatchNorm3d>() != nullptr;
}

void convert(torch::Tensor& tensor, torch::TensorOptions options) {
  if (!tensor.is_floating_point()) options = options.dtype(tensor.dtype());
  tensor.set_data(has_memory(tensor) ? tensor.detach().to(options)
                                     : without_memory(tensor, options));
}

void convert_own(torch::nn::Module& module, const torch::TensorOptions& options) {
  for (auto& parameter : module.parameters(/*recurse=*/false)) {
    convert(parameter, options);
  }
  for (auto& buffer : module.buffers(/*recurse=*/false)) convert(buffer, options);
}

}  // namespace

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

void convert(torch::nn::Module& module, const Policy& policy) {
  const auto parameters = module.parameters();
  if (std::all_of(parameters.begin(), parameters.end(), has_memory)) {
    module.to(policy.device);
  }
  const bool keeps_norms = config::has_half_parameters(policy.mode);
  for (const auto& part : module.modules()) {
    const bool keeps = keeps_norms && is_batch_norm(*part);
    convert_own(
        *part,
        torch::dtype(keeps ? torch::kFloat32 : policy.dtype()).device(policy.device));
  }
}

AutocastScope::AutocastScope(const Policy& policy)
    : active_(policy.mode == config::Precision::bf16 ||
              policy.mode == config::Precision::fp16),
      device_(policy.device.type()) {
  if (!active_) return;
  was_enabled_ = at::autocast::is_autocast_enabled(device_);
  before_ = at::autocast::get_autocast_dtype(device_);
  at::autocast::set_autocast_enabled(device_, true);
  at::autocast::set_autocast_dtype(device_, policy.mode == config::Precision::fp16
                                                ? torch::kFloat16
                                                : torch::kBFloat16);
  at::autocast::increment_nesting();
}

AutocastScope::~AutocastScope() {
  if (!active_) return;
  // The cache holds converted copies of the weights, which the next update makes stale.
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(device_, was_enabled_);
  at::autocast::set_autocast_dtype(device_, before_);
}

}  // namespace lockstep::precision
