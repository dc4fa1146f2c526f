#pragma once

#include <algorithm>

#include "lockstep/kernels/detail/device.h"
#include "lockstep/kernels/layer_norm.h"
#include "lockstep/kernels/pack_columns.h"

// Sums over rows in two halves: blocks go down strips of columns and leave parts; these
// are added in their order.
namespace lockstep::kernels::detail {

inline constexpr int kStripLanes = 16;  // threads along a row: 256 bytes of it
inline constexpr int kStripRows = 16;   // rows at once
inline constexpr int kStripThreads = kStripLanes * kStripRows;

// What one block of kStripLanes x kStripRows threads works on.
struct Strip {
  std::int64_t rows, width;
  float* parts;

  __device__ std::int64_t column(int count) const {
    return (std::int64_t{blockIdx.x} * kStripLanes + threadIdx.x) * count;
  }
  __device__ std::int64_t first_row() const {
    return std::int64_t{blockIdx.y} * kStripRows + threadIdx.y;
  }
  __device__ std::int64_t step() const { return std::int64_t{gridDim.y} * kStripRows; }
};

// As many parts as keep all blocks running at once: a few blocks that come after the
// others would double the time.
inline dim3 strip_grid(const Strip& strip, int count) {
  const int processors = num_processors();
  const auto strips = blocks_for(strip.width, std::int64_t{kStripLanes} * count);
  const std::int64_t at_once = std::int64_t{processors} * (2048 / kStripThreads) / 2;
  const auto most = std::min<std::int64_t>(
      kPackParts, blocks_for(strip.rows, std::int64_t{kStripRows}));
  return {strips,
          static_cast<unsigned>(std::clamp<std::int64_t>(at_once / strips, 1, most))};
}

// Adds the sums of a block's threads and leaves them in parts[blockIdx.y].
template <int kCount>
__device__ void leave_part(const Strip& strip, const float (&sums)[kCount]) {
  __shared__ float shared[kStripRows][kStripLanes * kCount];
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    shared[threadIdx.y][threadIdx.x * kCount + k] = sums[k];
  }
  __syncthreads();
  const int i = static_cast<int>(threadIdx.y * kStripLanes + threadIdx.x);
  const std::int64_t at = std::int64_t{blockIdx.x} * kStripLanes * kCount + i;
  if (i >= kStripLanes * kCount || at >= strip.width) return;
  float sum = 0;
  for (int y = 0; y < kStripRows; ++y) sum += shared[y][i];
  strip.parts[blockIdx.y * strip.width + at] = sum;
}

inline constexpr int kMostSums = 3;

// parts[part][sum][column]
struct ColumnParts {
  const float* parts = nullptr;
  ColumnSums sums[kMostSums];
  int num_sums = 0;
  std::int64_t num_parts = 0, width = 0;
};

inline constexpr int kAdders = 16;  // threads that share a column

template <typename T>
__global__ void add_parts_kernel(ColumnParts args) {
  __shared__ float shared[kAdders][kWarp];
  const std::int64_t i = std::int64_t{blockIdx.x} * kWarp + threadIdx.x;
  const std::int64_t all = args.num_sums * args.width;
  float sum = 0;
  if (i < all) {
#pragma unroll 8
    for (std::int64_t part = threadIdx.y; part < args.num_parts; part += kAdders) {
      sum += args.parts[part * all + i];
    }
  }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || i >= all) return;
  for (int adder = 1; adder < kAdders; ++adder) sum += shared[adder][threadIdx.x];
  const auto& to = args.sums[i / args.width];
  if (to.at == nullptr) return;
  auto& place = static_cast<T*>(to.at)[i % args.width];
  place = narrow<T>(to.adds ? wide(place) + sum : sum);
}

template <typename T>
void add_parts(const ColumnParts& args, CUstream_st* stream) {
  add_parts_kernel<T><<<blocks_for(args.num_sums * args.width, kWarp),
                        dim3(kWarp, kAdders), 0, stream>>>(args);
}

}  // namespace lockstep::kernels::detail
