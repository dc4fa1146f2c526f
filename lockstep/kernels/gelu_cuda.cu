#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/column_parts.h"
#include "lockstep/kernels/detail/device.h"

namespace lockstep::kernels {
namespace {

using namespace detail;

constexpr int kGeluThreads = 256;
constexpr float kSlope = 0.7978845608F;  // sqrt(2 / pi)
constexpr float kCubic = 0.044715F;

// The fast instruction errs by 2^-11, less than bf16 rounds by.
__device__ float hyperbolic(float x, __nv_bfloat16) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ float hyperbolic(float x, float) {
  return tanhf(x);
}

template <typename T>
struct Forward {
  const T* in;
  T* out;
  __device__ float operator()(float x, float) const {
    const float t = hyperbolic(kSlope * (x + kCubic * x * x * x), T{});
    return 0.5F * x * (1 + t);
  }
  __device__ const T* second() const { return in; }
};

template <typename T>
struct Backward {
  const T* in;
  T* out;
  const T* gradient;
  __device__ float operator()(float x, float g) const {
    const float t = hyperbolic(kSlope * (x + kCubic * x * x * x), T{});
    const float inner = kSlope * (1 + 3 * kCubic * x * x);
    return g * (0.5F * (1 + t) + 0.5F * x * (1 - t * t) * inner);
  }
  __device__ const T* second() const { return gradient; }
};

template <typename T, int kCount, typename Op>
__global__ void gelu_kernel(Op op, std::int64_t count) {
  const std::int64_t i =
      (std::int64_t{blockIdx.x} * kGeluThreads + threadIdx.x) * kCount;
  if (i >= count) return;
  const auto x = load<kCount>(op.in + i);
  const auto g = load<kCount>(op.second() + i);
  Vector<T, kCount> out;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    out.at[k] = narrow<T>(op(wide(x.at[k]), wide(g.at[k])));
  }
  store<kCount>(op.out + i, out);
}

template <typename T, typename Op>
void launch(const Op& op, std::int64_t count, CUstream_st* stream) {
  constexpr int kCount = kVector<T>;
  if (count % kCount == 0 && is_aligned(op.in) && is_aligned(op.out)) {
    gelu_kernel<T, kCount>
        <<<blocks_for(count, kGeluThreads * kCount), kGeluThreads, 0, stream>>>(op,
                                                                                count);
  } else {
    gelu_kernel<T, 1>
        <<<blocks_for(count, kGeluThreads), kGeluThreads, 0, stream>>>(op, count);
  }
}

// The same with the sums of the columns of what it writes.
template <typename T, int kCount>
__global__ void __launch_bounds__(kStripThreads)
    gelu_sums_kernel(Backward<T> op, Strip strip) {
  const std::int64_t column = strip.column(kCount);
  float sums[kCount] = {};
  if (column < strip.width) {
#pragma unroll 4
    for (std::int64_t row = strip.first_row(); row < strip.rows; row += strip.step()) {
      const std::int64_t i = row * strip.width + column;
      const auto x = load<kCount>(op.in + i);
      const auto g = load<kCount>(op.gradient + i);
      Vector<T, kCount> out;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const float value = op(wide(x.at[k]), wide(g.at[k]));
        sums[k] += value;
        out.at[k] = narrow<T>(value);
      }
      store<kCount>(op.out + i, out);
    }
  }
  leave_part<kCount>(strip, sums);
}

template <typename T, int kCount>
void launch_with_sums(const Backward<T>& op, const GeluBackward& args,
                      CUstream_st* stream) {
  const Strip strip{args.rows, args.width, args.workspace};
  const auto grid = strip_grid(strip, kCount);
  gelu_sums_kernel<T, kCount>
      <<<grid, dim3(kStripLanes, kStripRows), 0, stream>>>(op, strip);
  check_launch("gelu_backward");
  add_parts<T>({.parts = args.workspace,
                .sums = {args.sums},
                .num_sums = 1,
                .num_parts = grid.y,
                .width = args.width},
               stream);
}

}  // namespace

void gelu_cuda(const Gelu& args, CUstream_st* stream) {
  if (args.count == 0) return;
  with_device_element(args.number, [&](auto element) {
    using T = decltype(element);
    launch<T>(Forward<T>{static_cast<const T*>(args.in), static_cast<T*>(args.out)},
              args.count, stream);
  });
  check_launch("gelu");
}

void gelu_backward_cuda(const GeluBackward& args, CUstream_st* stream) {
  if (args.rows * args.width == 0) return;
  with_device_element(args.number, [&](auto element) {
    using T = decltype(element);
    const Backward<T> op{static_cast<const T*>(args.in), static_cast<T*>(args.out),
                         static_cast<const T*>(args.gradient)};
    if (args.sums.at == nullptr) return launch<T>(op, args.rows * args.width, stream);
    const bool aligned = args.width % kVector<T> == 0 && is_aligned(args.in) &&
                         is_aligned(args.out) && is_aligned(args.gradient);
    if (aligned) return launch_with_sums<T, kVector<T>>(op, args, stream);
    launch_with_sums<T, 1>(op, args, stream);
  });
  check_launch("gelu_backward");
}

}  // namespace lockstep::kernels
