#include <algorithm>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/chance.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 8;
constexpr std::int64_t kMostRows = 65535;

template <typename T>
__device__ T times(T value, float scale) {
  return value * scale;
}
template <>
__device__ __nv_bfloat16 times(__nv_bfloat16 value, float scale) {
  return __float2bfloat16_rn(__bfloat162float(value) * scale);
}
template <>
__device__ __half times(__half value, float scale) {
  return __float2half_rn(__half2float(value) * scale);
}
__device__ double times(double value, double scale) {
  return value * scale;
}

// A row of blocks is a sample. The compiler joins the reads of neighbouring threads.
template <typename T, typename Wide>
__global__ void dropout_kernel(Dropout args) {
  const auto scale = static_cast<Wide>(args.scale);
  if (args.place != nullptr) {
    args.key = key_of_call(args.place->key, args.layer, args.call);
    args.first_sample = args.place->first_sample;
  }
  for (std::int64_t s = blockIdx.y; s < args.num_samples; s += gridDim.y) {
    const auto key = detail::key_of(args.key, args.first_sample + s);
    const auto* in = static_cast<const T*>(args.in) + s * args.sample_elements;
    auto* out = static_cast<T*>(args.out) + s * args.sample_elements;
    const std::int64_t begin =
        std::int64_t{blockIdx.x} * kThreads * kPerThread + threadIdx.x;
#pragma unroll
    for (int k = 0; k < kPerThread; ++k) {
      const std::int64_t e = begin + std::int64_t{k} * kThreads;
      if (e >= args.sample_elements) break;
      const bool kept =
          detail::chance(key, static_cast<std::uint32_t>(e)) < args.keep_below;
      out[e] = times(in[e], kept ? scale : Wide(0));
    }
  }
}

template <typename T, typename Wide>
void launch(const Dropout& args, CUstream_st* stream) {
  const std::int64_t per_block = kThreads * kPerThread;
  const dim3 blocks(
      static_cast<unsigned>((args.sample_elements + per_block - 1) / per_block),
      static_cast<unsigned>(std::min(args.num_samples, kMostRows)));
  dropout_kernel<T, Wide><<<blocks, kThreads, 0, stream>>>(args);
}

void launch_any(const Dropout& args, CUstream_st* stream) {
  switch (args.number) {
    case Number::f32:
      return launch<float, float>(args, stream);
    case Number::f64:
      return launch<double, double>(args, stream);
    case Number::bf16:
      return launch<__nv_bfloat16, float>(args, stream);
    case Number::f16:
      return launch<__half, float>(args, stream);
  }
}

}  // namespace

void dropout_cuda(const Dropout& args, CUstream_st* stream) {
  if (args.num_samples * args.sample_elements == 0) return;
  launch_any(args, stream);
  if (const auto status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Fault::hardware,
                "kernels: dropout did not start: ", cudaGetErrorString(status));
  }
}

}  // namespace lockstep::kernels
