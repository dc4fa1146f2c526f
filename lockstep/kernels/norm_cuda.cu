#include <cuda_runtime.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/halves.h"

namespace lockstep::kernels {
namespace {

constexpr int kWarps = 8;

// A warp sums a block: its threads are the lanes.
template <typename In, bool kSquares>
__global__ void sum_blocks(const In* in, std::int64_t num_elements, double* sums) {
  const std::int64_t block =
      std::int64_t{blockIdx.x} * kWarps + threadIdx.x / kNormLanes;
  const std::int64_t begin = block * kNormBlock;
  if (begin >= num_elements) return;
  const int lane = threadIdx.x % kNormLanes;
  const std::int64_t end = min(begin + kNormBlock, num_elements);
  double sum = 0;
#pragma unroll 16
  for (std::int64_t i = begin + lane; i < end; i += kNormLanes) {
    const double x = detail::widened(in[i]);
    sum += kSquares ? x * x : x;
  }
  for (int width = kNormLanes / 2; width > 0; width /= 2) {
    const double other = __shfl_down_sync(0xFFFFFFFFU, sum, width);
    if (lane < width) sum += other;
  }
  if (lane == 0) sums[block] = sum;
}

__global__ void clip_factor_kernel(ClipFactor args) {
  const double scale = args.scale_at != nullptr ? *args.scale_at : args.gradient_scale;
  const double norm = scale * sqrt(*args.squared);
  args.out[0] = norm;
  const double factor = args.most / (norm + kNormFloor);
  args.out[1] = args.most > 0 && !(factor > 1) ? factor : 1;
}

void check_launch(const char* what) {
  if (const auto status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Fault::hardware, "kernels: ", what,
                " did not start: ", cudaGetErrorString(status));
  }
}

template <typename In, bool kSquares>
void launch(const void* in, std::int64_t count, double* sums, CUstream_st* stream) {
  const auto grid = static_cast<unsigned>((norm_blocks(count) + kWarps - 1) / kWarps);
  sum_blocks<In, kSquares><<<grid, kWarps * kNormLanes, 0, stream>>>(
      static_cast<const In*>(in), count, sums);
  check_launch("squared_norm");
}

}  // namespace

void squared_norm_cuda(const SquaredNormArgs& args, CUstream_st* stream) {
  auto count = norm_blocks(args.num_elements);
  double* sums = count == 1 ? args.out : args.workspace;
  switch (args.element) {
    case Element::f32:
      launch<float, true>(args.in, args.num_elements, sums, stream);
      break;
    case Element::f64:
      launch<double, true>(args.in, args.num_elements, sums, stream);
      break;
    case Element::bf16:
      launch<detail::Bf16, true>(args.in, args.num_elements, sums, stream);
      break;
    case Element::f16:
      launch<detail::F16, true>(args.in, args.num_elements, sums, stream);
      break;
  }
  while (count > 1) {
    double* next = norm_blocks(count) == 1 ? args.out : sums + count;
    launch<double, false>(sums, count, next, stream);
    sums = next;
    count = norm_blocks(count);
  }
}

void clip_factor_cuda(const ClipFactor& args, CUstream_st* stream) {
  clip_factor_kernel<<<1, 1, 0, stream>>>(args);
  check_launch("clip_factor");
}

}  // namespace lockstep::kernels
