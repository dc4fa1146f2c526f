#include "lockstep/models/deferred.h"

#include <array>
#include <tuple>

#include <ATen/native/ConvUtils.h>
#include <torch/library.h>
#include <torch/torch.h>

#include "lockstep/models/detail/init_recorder.h"

namespace lockstep::models {
namespace {

using torch::Tensor;
using Optional = std::optional<Tensor>;
using Three = std::tuple<Tensor, Tensor, Tensor>;

// Operators that make a tensor out of nothing have a device among their arguments.
void make_without_memory(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  if (auto* const recorder = detail::current_recorder())
    return recorder->run(op, stack);
  const auto& arguments = op.schema().arguments();
  const auto first = stack->size() - arguments.size();
  bool from_tensors = false;
  std::optional<std::size_t> device;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const auto& value = (*stack)[first + i];
    from_tensors |= value.isTensor() || value.isTensorList();
    if (arguments[i].name() == "device") device = first + i;
  }
  if (device && !from_tensors) (*stack)[*device] = c10::Device(c10::kMeta);
  const c10::impl::ExcludeDispatchKeyGuard once(c10::DispatchKey::DeferredInit);
  op.callBoxed(stack);
}

// LibTorch has no shapes for these in C++: they are registered by its Python half.

Tensor convolution(const Tensor& input, const Tensor& weight, const Optional&,
                   at::IntArrayRef stride, at::IntArrayRef padding,
                   at::IntArrayRef dilation, bool transposed, at::IntArrayRef,
                   std::int64_t) {
  TORCH_CHECK(!transposed, "a transposed convolution has no shape without memory");
  const auto shape = at::native::conv_output_size(input.sizes(), weight.sizes(),
                                                  padding, stride, dilation);
  const auto format = weight.suggest_memory_format();
  return at::empty(shape, input.options().memory_format(format));
}

Three convolution_backward(const Tensor& gradient, const Tensor& input,
                           const Tensor& weight, at::IntArrayRef, at::IntArrayRef,
                           at::IntArrayRef, bool, at::IntArrayRef, std::int64_t,
                           std::array<bool, 3> wanted) {
  return {wanted[0] ? at::empty_like(input) : Tensor(),
          wanted[1] ? at::empty_like(weight) : Tensor(),
          wanted[2] ? at::empty({gradient.size(1)}, gradient.options()) : Tensor()};
}

Three batch_norm(const Tensor& input, const Optional&, const Optional&, const Optional&,
                 const Optional&, bool training, double, double) {
  const auto channels = training ? input.size(1) : 0;
  const auto options = input.options().memory_format(std::nullopt);
  return {at::empty_like(input), at::empty({channels}, options),
          at::empty({channels}, options)};
}

Three batch_norm_backward(const Tensor&, const Tensor& input, const Optional&,
                          const Optional&, const Optional&, const Optional&,
                          const Optional&, bool, double, std::array<bool, 3> wanted) {
  const auto channels = [&] { return at::empty({input.size(1)}, input.options()); };
  return {wanted[0] ? at::empty_like(input) : Tensor(),
          wanted[1] ? channels() : Tensor(), wanted[2] ? channels() : Tensor()};
}

Tensor index_select(const Tensor& self, std::int64_t dim, const Tensor& index) {
  auto shape = self.sizes().vec();
  shape[static_cast<std::size_t>(dim < 0 ? dim + self.dim() : dim)] = index.numel();
  return at::empty(shape, self.options());
}

// Computes attention in one operator, which keeps no scores, as on every GPU.
std::tuple<Tensor, Tensor> attention(const Tensor& query, const Tensor&, const Tensor&,
                                     double, bool, const Optional&,
                                     std::optional<double>) {
  return {at::empty_like(query),
          at::empty({query.size(0), query.size(2), query.size(1)},
                    query.options().dtype(at::kFloat))};
}

Three attention_backward(const Tensor&, const Tensor& query, const Tensor& key,
                         const Tensor& value, const Tensor&, const Tensor&, double,
                         bool, const Optional&, std::optional<double>) {
  return {at::empty_like(query), at::empty_like(key), at::empty_like(value)};
}

Tensor embedding_dense_backward(const Tensor& gradient, const Tensor&,
                                std::int64_t num_weights, std::int64_t, bool) {
  return at::empty({num_weights, gradient.size(-1)}, gradient.options());
}

Three layer_norm(const Tensor& input, at::IntArrayRef normalized, const Optional&,
                 const Optional&, double) {
  auto shape = input.sizes().vec();
  for (std::size_t i = shape.size() - normalized.size(); i < shape.size(); ++i) {
    shape[i] = 1;
  }
  return {at::empty_like(input), at::empty(shape, input.options()),
          at::empty(shape, input.options())};
}

Three layer_norm_backward(const Tensor&, const Tensor& input,
                          at::IntArrayRef normalized, const Tensor&, const Tensor&,
                          const Optional&, const Optional&,
                          std::array<bool, 3> wanted) {
  const auto affine = [&] { return at::empty(normalized, input.options()); };
  return {wanted[0] ? at::empty_like(input) : Tensor(), wanted[1] ? affine() : Tensor(),
          wanted[2] ? affine() : Tensor()};
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&make_without_memory>());
}

TORCH_LIBRARY_IMPL(aten, Meta, m) {
  m.impl("_scaled_dot_product_flash_attention_for_cpu", attention);
  m.impl("_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward);
  m.impl("convolution_overrideable", convolution);
  m.impl("convolution_backward_overrideable", convolution_backward);
  m.impl("embedding_dense_backward", embedding_dense_backward);
  m.impl("index_select", index_select);
  m.impl("native_batch_norm", batch_norm);
  m.impl("native_batch_norm_backward", batch_norm_backward);
  m.impl("native_layer_norm", layer_norm);
  m.impl("native_layer_norm_backward", layer_norm_backward);
}

DeferredMemory::DeferredMemory() : guard_(c10::DispatchKey::DeferredInit) {}

}  // namespace lockstep::models
