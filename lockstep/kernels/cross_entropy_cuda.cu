#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/device.h"

namespace lockstep::kernels {
namespace {

using namespace detail;

constexpr int kRowThreads = 512;
constexpr int kRowWarps = kRowThreads / kWarp;
constexpr float kLog2E = 1.4426950408889634F;

// 2^x to 22 bits, in one instruction; what is too small becomes 0.
__device__ float power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// sum = the sum of exp(x - most) over the x that have been seen.
struct Running {
  float most = -INFINITY;
  float sum = 0;

  __device__ void join(const Running& other) {
    const float larger = fmaxf(most, other.most);
    if (larger == -INFINITY) return;
    sum = sum * power((most - larger) * kLog2E) +
          other.sum * power((other.most - larger) * kLog2E);
    most = larger;
  }

  // Only the first `counted` count.
  template <int kCount>
  __device__ void add(float (&x)[kCount], int counted) {
    if (counted < kCount) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) x[k] = k < counted ? x[k] : -INFINITY;
    }
    float larger = most;
#pragma unroll
    for (int k = 0; k < kCount; ++k) larger = fmaxf(larger, x[k]);
    if (larger == -INFINITY) return;
    const float shift = larger * kLog2E;
    float total = larger > most ? sum * power(most * kLog2E - shift) : sum;
#pragma unroll
    for (int k = 0; k < kCount; ++k) total += power(x[k] * kLog2E - shift);
    most = larger;
    sum = total;
  }
};

// All threads get the result; the order of the joins is always the same.
__device__ Running over_block(Running own) {
  __shared__ Running shared[kRowWarps];
#pragma unroll
  for (int width = kWarp / 2; width > 0; width /= 2) {
    own.join({__shfl_xor_sync(kAllLanes, own.most, width),
              __shfl_xor_sync(kAllLanes, own.sum, width)});
  }
  if (threadIdx.x % kWarp == 0) shared[threadIdx.x / kWarp] = own;
  __syncthreads();
  Running all = shared[0];
#pragma unroll
  for (int warp = 1; warp < kRowWarps; ++warp) all.join(shared[warp]);
  return all;
}

// One block a row. With kKeeps the row stays in shared memory between its two passes,
// so that it is read from memory once.
template <typename T, int kCount, bool kKeeps>
__global__ void __launch_bounds__(kRowThreads, 2)
    cross_entropy_kernel(CrossEntropy args) {
  extern __shared__ uint4 kept_bytes[];
  auto* kept = reinterpret_cast<T*>(kept_bytes);
  const std::int64_t row = blockIdx.x;
  auto* logits = static_cast<T*>(args.logits) + row * args.columns;
  const std::int64_t target = args.targets[row];
  const auto columns = static_cast<int>(args.columns);
  const auto classes = static_cast<int>(args.classes);
  const int first = static_cast<int>(threadIdx.x) * kCount;
  if (target < 0 || target >= classes) {
    for (int j = first; j < columns; j += kRowThreads * kCount) {
      store<kCount>(logits + j, Vector<T, kCount>{});
    }
    if (threadIdx.x == 0) args.losses[row] = 0;
    return;
  }
  const float right = wide(logits[target]);
  Running own;
#pragma unroll 4
  for (int j = first; j < columns; j += kRowThreads * kCount) {
    const auto read = load<kCount>(logits + j);
    if constexpr (kKeeps) store<kCount>(kept + j, read);
    float x[kCount];
#pragma unroll
    for (int k = 0; k < kCount; ++k) x[k] = wide(read.at[k]);
    own.add(x, classes - j);
  }
  // Its barrier is after the read of the target's logit, too.
  const Running all = over_block(own);
  const float scale =
      args.scale_at != nullptr ? args.scale * *args.scale_at : args.scale;
  const float factor = scale / all.sum;
  const float shift = all.most * kLog2E;
#pragma unroll 4
  for (int j = first; j < columns; j += kRowThreads * kCount) {
    const auto read = load<kCount>((kKeeps ? kept : logits) + j);
    Vector<T, kCount> out;
#pragma unroll
    for (int k = 0; k < kCount; ++k) {
      out.at[k] = narrow<T>(power(wide(read.at[k]) * kLog2E - shift) * factor);
    }
    if (j + kCount > classes || (j <= target && target < j + kCount)) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        if (j + k >= classes) out.at[k] = narrow<T>(0.0F);
        if (j + k == target) {
          const float share = power(wide(read.at[k]) * kLog2E - shift) * factor;
          out.at[k] = narrow<T>(share - scale);
        }
      }
    }
    store<kCount>(logits + j, out);
  }
  if (threadIdx.x == 0) args.losses[row] = logf(all.sum) + all.most - right;
}

template <typename T, int kCount, bool kKeeps>
void launch(const CrossEntropy& args, CUstream_st* stream) {
  auto* kernel = cross_entropy_kernel<T, kCount, kKeeps>;
  const auto bytes = kKeeps ? static_cast<int>(args.columns * sizeof(T)) : 0;
  if (bytes > 0) {
    cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  }
  kernel<<<static_cast<unsigned>(args.rows), kRowThreads, bytes, stream>>>(args);
}

bool fits_shared_memory(std::int64_t bytes) {
  int device = 0, most = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin, device);
  return bytes <= most - 1024;
}

}  // namespace

void cross_entropy_cuda(const CrossEntropy& args, CUstream_st* stream) {
  if (args.rows * args.columns == 0) return;
  with_device_element(args.number, [&](auto element) {
    using T = decltype(element);
    const bool aligned = args.columns % kVector<T> == 0 && is_aligned(args.logits);
    const bool keeps =
        fits_shared_memory(args.columns * static_cast<std::int64_t>(sizeof(T)));
    if (aligned && keeps) return launch<T, kVector<T>, true>(args, stream);
    if (aligned) return launch<T, kVector<T>, false>(args, stream);
    launch<T, 1, false>(args, stream);
  });
  check_launch("cross_entropy");
}

}  // namespace lockstep::kernels
