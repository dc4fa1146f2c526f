#include "lockstep/kernels/gemm.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include "lockstep/kernels/runner.h"

namespace lockstep::kernels {
namespace {

using at::Tensor;

Tensor matrix(const void* at, const GemmShape& shape, c10::IntArrayRef sizes) {
  const auto type = shape.number == Number::bf16 ? at::kBFloat16 : at::kFloat;
  return at::from_blob(const_cast<void*>(at), sizes, at::TensorOptions().dtype(type));
}

void finish(const Gemm& args, Tensor& product) {
  const auto& shape = args.shape;
  auto out = matrix(args.out, shape, {shape.m, shape.n});
  if (shape.epilogue == Epilogue::bias || shape.epilogue == Epilogue::gelu) {
    product.add_(matrix(args.vector, shape, {shape.n}));
  }
  if (shape.epilogue == Epilogue::gelu) {
    matrix(args.aux, shape, {shape.m, shape.n}).copy_(product);
    product = at::gelu(product, "tanh");
  } else if (shape.epilogue == Epilogue::gelu_backward) {
    const auto aux = matrix(args.aux, shape, {shape.m, shape.n}).to(product.dtype());
    product = at::gelu_backward(product, aux, "tanh");
  }
  if (shape.adds) product.add_(matrix(args.added, shape, {shape.m, shape.n}));
  out.copy_(product);
}

}  // namespace

void gemm_cpu(const Gemm& args) {
  const c10::NoGradGuard no_grad;
  const auto& shape = args.shape;
  auto a = shape.a_transposed ? matrix(args.a, shape, {shape.k, shape.m}).t()
                              : matrix(args.a, shape, {shape.m, shape.k});
  auto b = shape.b_transposed ? matrix(args.b, shape, {shape.n, shape.k}).t()
                              : matrix(args.b, shape, {shape.k, shape.n});
  if (shape.epilogue == Epilogue::row_sums) {
    matrix(args.vector, shape, {shape.m}).copy_(a.to(at::kFloat).sum(1));
  }
  auto product = at::mm(a, b).to(at::kFloat);
  finish(args, product);
  if (shape.epilogue == Epilogue::gelu_backward && args.vector != nullptr) {
    matrix(args.vector, shape, {shape.n}).copy_(product.sum(0));
  }
}

}  // namespace lockstep::kernels
