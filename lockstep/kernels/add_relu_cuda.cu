#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kBytes = 16;  // read by a thread at once

__device__ float sum(float a, float b) {
  return a + b;
}
__device__ double sum(double a, double b) {
  return a + b;
}
__device__ __nv_bfloat16 sum(__nv_bfloat16 a, __nv_bfloat16 b) {
  return __float2bfloat16_rn(__bfloat162float(a) + __bfloat162float(b));
}
__device__ __half sum(__half a, __half b) {
  return __float2half_rn(__half2float(a) + __half2float(b));
}

// The comparison is not "greater than": a NaN stays one.
template <typename T>
__device__ T positive(T value) {
  return static_cast<float>(value) <= 0.0F ? T(0.0F) : value;
}
__device__ double positive(double value) {
  return value <= 0 ? 0 : value;
}

template <typename T>
struct alignas(kBytes) Group {
  T values[kBytes / sizeof(T)];
};

template <typename T>
__global__ void add_relu_kernel(T* out, const T* a, const T* b, std::int64_t groups,
                                std::int64_t count) {
  constexpr int kGroup = kBytes / sizeof(T);
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i < groups) {
    const auto from_a = reinterpret_cast<const Group<T>*>(a)[i];
    const auto from_b = reinterpret_cast<const Group<T>*>(b)[i];
    Group<T> result;
#pragma unroll
    for (int k = 0; k < kGroup; ++k) {
      result.values[k] = positive(sum(from_a.values[k], from_b.values[k]));
    }
    reinterpret_cast<Group<T>*>(out)[i] = result;
  }
  // The first threads do the remaining elements.
  const std::int64_t rest = groups * kGroup + i;
  if (rest < count) out[rest] = positive(sum(a[rest], b[rest]));
}

bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % kBytes == 0;
}

template <typename T>
void launch(const AddRelu& args, CUstream_st* stream) {
  const bool wide = is_aligned(args.out) && is_aligned(args.a) && is_aligned(args.b);
  constexpr std::int64_t kGroup = kBytes / sizeof(T);
  const std::int64_t groups = wide ? args.count / kGroup : 0;
  const std::int64_t rest = args.count - groups * kGroup;
  const auto threads = groups > rest ? groups : rest;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  add_relu_kernel<<<blocks, kThreads, 0, stream>>>(
      static_cast<T*>(args.out), static_cast<const T*>(args.a),
      static_cast<const T*>(args.b), groups, args.count);
}

void launch_any(const AddRelu& args, CUstream_st* stream) {
  switch (args.number) {
    case Number::f32:
      return launch<float>(args, stream);
    case Number::f64:
      return launch<double>(args, stream);
    case Number::bf16:
      return launch<__nv_bfloat16>(args, stream);
    case Number::f16:
      return launch<__half>(args, stream);
  }
}

}  // namespace

void add_relu_cuda(const AddRelu& args, CUstream_st* stream) {
  if (args.count == 0) return;
  launch_any(args, stream);
  if (const auto status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Fault::hardware,
                "kernels: add_relu did not start: ", cudaGetErrorString(status));
  }
}

}  // namespace lockstep::kernels
