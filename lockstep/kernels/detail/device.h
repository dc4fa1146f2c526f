#pragma once

#include <cstdint>

#include <cuda_bf16.h>
#include <cuda_runtime.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/dropout.h"

// What the kernels that compute in float share: for .cu files only.
namespace lockstep::kernels::detail {

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xFFFFFFFFU;

__device__ inline float wide(float value) {
  return value;
}
__device__ inline float wide(__nv_bfloat16 value) {
  return __bfloat162float(value);
}
template <typename T>
__device__ T narrow(float value);
template <>
__device__ inline float narrow(float value) {
  return value;
}
template <>
__device__ inline __nv_bfloat16 narrow(float value) {
  return __float2bfloat16_rn(value);
}

// Elements that a thread reads at once. 16 bytes is what memory likes; 1 fits any row.
template <typename T>
inline constexpr int kVector = 16 / sizeof(T);

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Vector {
  T at[kCount];
};

template <int kCount, typename T>
__device__ Vector<T, kCount> load(const T* from) {
  return *reinterpret_cast<const Vector<T, kCount>*>(from);
}
template <int kCount, typename T>
__device__ void store(T* to, const Vector<T, kCount>& value) {
  *reinterpret_cast<Vector<T, kCount>*>(to) = value;
}

// All lanes get the sum.
__device__ inline float warp_sum(float value) {
#pragma unroll
  for (int width = kWarp / 2; width > 0; width /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, width);
  }
  return value;
}

inline bool is_aligned(const void* address) {
  return reinterpret_cast<std::uintptr_t>(address) % 16 == 0;
}

inline void check_launch(const char* what) {
  if (const auto status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Fault::hardware, "kernels: ", what,
                " did not start: ", cudaGetErrorString(status));
  }
}

// Calls body with a value of the element's type.
template <typename Body>
void with_device_element(Number number, const Body& body) {
  switch (number) {
    case Number::f32:
      return body(float{});
    case Number::bf16:
      return body(__nv_bfloat16{});
    default:
      throw Error(Fault::internal, "kernels: only float and bf16 have this kernel");
  }
}

inline int num_processors() {
  int device = 0, processors = 1;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  return processors;
}

inline unsigned blocks_for(std::int64_t items, std::int64_t per_block) {
  return static_cast<unsigned>((items + per_block - 1) / per_block);
}

}  // namespace lockstep::kernels::detail
