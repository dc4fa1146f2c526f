#include <cuda_runtime.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"

namespace lockstep::kernels {
namespace {

constexpr int kThreads = 256;
constexpr int kPerThread = 4;

__device__ int channel_at(const Normalize& args, std::int64_t i) {
  return static_cast<int>(i / args.plane % args.num_channels);
}

// Planes are of a multiple of four elements, or there is one channel.
__global__ void normalize_kernel(Normalize args) {
  const std::int64_t begin =
      (std::int64_t{blockIdx.x} * kThreads + threadIdx.x) * kPerThread;
  if (begin + kPerThread <= args.num_elements) {
    // Four bytes in, sixteen bytes out: full-width transactions both ways.
    const uchar4 in = *reinterpret_cast<const uchar4*>(args.in + begin);
    const int channel = args.num_channels == 1 ? 0 : channel_at(args, begin);
    const float scale = args.scale[channel];
    const float shift = args.shift[channel];
    float4 out;
    out.x = fmaf(scale, in.x, shift);
    out.y = fmaf(scale, in.y, shift);
    out.z = fmaf(scale, in.z, shift);
    out.w = fmaf(scale, in.w, shift);
    *reinterpret_cast<float4*>(args.out + begin) = out;
    return;
  }
  for (std::int64_t i = begin; i < args.num_elements; ++i) {
    const int channel = channel_at(args, i);
    args.out[i] = fmaf(args.scale[channel], args.in[i], args.shift[channel]);
  }
}

// A view that starts in the middle of a buffer need not be aligned to four elements.
__global__ void normalize_any_kernel(Normalize args) {
  const std::int64_t i = std::int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (i >= args.num_elements) return;
  const int channel = channel_at(args, i);
  args.out[i] = fmaf(args.scale[channel], args.in[i], args.shift[channel]);
}

bool is_aligned(const void* pointer, std::uintptr_t bytes) {
  return reinterpret_cast<std::uintptr_t>(pointer) % bytes == 0;
}

}  // namespace

void normalize_cuda(const Normalize& args, CUstream_st* stream) {
  if (args.num_elements == 0) return;
  const bool wide = is_aligned(args.in, sizeof(uchar4)) &&
                    is_aligned(args.out, sizeof(float4)) &&
                    (args.num_channels == 1 || args.plane % kPerThread == 0);
  const std::int64_t per_block = kThreads * (wide ? kPerThread : 1);
  const auto blocks =
      static_cast<unsigned>((args.num_elements + per_block - 1) / per_block);
  if (wide) {
    normalize_kernel<<<blocks, kThreads, 0, stream>>>(args);
  } else {
    normalize_any_kernel<<<blocks, kThreads, 0, stream>>>(args);
  }
  if (const auto status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Fault::hardware,
                "kernels: normalize did not start: ", cudaGetErrorString(status));
  }
}

}  // namespace lockstep::kernels
