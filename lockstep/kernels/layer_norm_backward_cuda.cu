#include <algorithm>

#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/column_parts.h"
#include "lockstep/kernels/detail/device.h"

namespace lockstep::kernels {
namespace {

using namespace detail;

constexpr int kMostGroups = 8;
constexpr int kMostThreads = 448;  // of a block: two groups of the widest rows
constexpr int kMostWarps = kMostThreads / kWarp;
constexpr int kMostElements = 16;  // of a row, that a thread has
// A row of up to this many elements is one warp's: nobody waits at a barrier, and a
// warp has enough loads under way.
constexpr int kWarpRow = 1024;

// Waits for the threads of one group, which are whole warps.
__device__ void wait_for_group(int group, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(threads) : "memory");
}

struct Pair {
  float sum, product;
};

// How many threads a block may have, and how many blocks share a multiprocessor.
template <int kElements>
struct Occupancy {
  static constexpr bool kOneWarp = kElements > kMostElements;
  // Such a block has a multiprocessor and its registers to itself.
  static constexpr int kRowWarps = kElements > 24 ? 8 : 12;
  static constexpr int kThreads = kOneWarp ? kRowWarps * kWarp : kMostThreads;
  static constexpr int kBlocks = kElements <= 8 ? 2 : 1;
};

// A group of threads works on a row, kVectors vectors of kCount elements each; a block
// has several groups, and each takes every n-th row. Threads keep the sums of their
// columns until the end, when those of the groups are added in their order.
template <typename T, int kCount, int kVectors>
class BackwardGroup {
 public:
  __device__ explicit BackwardGroup(const LayerNormBackward& args) : args_(args) {}

  __device__ void add_row(std::int64_t row, Pair (*shared)[kMostWarps]) {
    const std::int64_t first = row * args_.width;
    const float mean = args_.mean[row], inverse = args_.inverse[row];
    Vector<T, kCount> in[kVectors], gradient[kVectors], through[kVectors];
    Pair own{0, 0};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = column_of(v);
      if (column >= args_.width) continue;
      in[v] = load<kCount>(static_cast<const T*>(args_.in) + first + column);
      gradient[v] =
          load<kCount>(static_cast<const T*>(args_.gradient) + first + column);
      if (args_.through != nullptr) {
        through[v] =
            load<kCount>(static_cast<const T*>(args_.through) + first + column);
      }
    }
    const auto normal = [&](int v, int k) {
      return (wide(in[v].at[k]) - mean) * inverse;
    };
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = column_of(v);
      if (column >= args_.width) continue;
      const auto weight = load<kCount>(static_cast<const T*>(args_.weight) + column);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const float g = wide(gradient[v].at[k]) * wide(weight.at[k]);
        own.sum += g;
        own.product += g * normal(v, k);
      }
    }
    const Pair all = over_group(own, shared[row_parity_ ^= 1]);
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = column_of(v);
      if (column >= args_.width) continue;
      const auto weight = load<kCount>(static_cast<const T*>(args_.weight) + column);
      Vector<T, kCount> out;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        const float g = wide(gradient[v].at[k]);
        const float x = normal(v, k);
        float total = inverse * (g * wide(weight.at[k]) - all.sum - x * all.product);
        if (args_.through != nullptr) total += wide(through[v].at[k]);
        sums_[0][v][k] += g * x;
        sums_[1][v][k] += g;
        sums_[2][v][k] += total;
        out.at[k] = narrow<T>(total);
      }
      store<kCount>(static_cast<T*>(args_.out) + first + column, out);
    }
  }

  // `shared` has room for a row of sums of every group.
  __device__ void leave_sums(float* shared) {
    auto* part = args_.workspace + std::int64_t{blockIdx.x} * 3 * args_.width;
#pragma unroll
    for (int which = 0; which < 3; ++which) {
      __syncthreads();
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          const int column = column_of(v) + k;
          if (column < args_.width) {
            shared[threadIdx.y * args_.width + column] = sums_[which][v][k];
          }
        }
      }
      __syncthreads();
      for (int column = threadIdx.y * blockDim.x + threadIdx.x; column < args_.width;
           column += blockDim.x * blockDim.y) {
        float sum = 0;
        for (int group = 0; group < blockDim.y; ++group) {
          sum += shared[group * args_.width + column];
        }
        part[which * args_.width + column] = sum;
      }
    }
  }

 private:
  __device__ int column_of(int v) const {
    return (v * static_cast<int>(blockDim.x) + static_cast<int>(threadIdx.x)) * kCount;
  }

  // Returns the mean over the row. `shared` alternates from row to row, so that one
  // barrier is enough.
  __device__ Pair over_group(Pair own, Pair* shared) const {
    own = {warp_sum(own.sum), warp_sum(own.product)};
    const auto width = static_cast<float>(args_.width);
    if constexpr (Occupancy<kCount * kVectors>::kOneWarp) {
      return {own.sum / width, own.product / width};
    }
    const int warps = blockDim.x / kWarp, first = threadIdx.y * warps;
    if (threadIdx.x % kWarp == 0) shared[first + threadIdx.x / kWarp] = own;
    wait_for_group(threadIdx.y, blockDim.x);
    Pair all{0, 0};
    for (int warp = 0; warp < warps; ++warp) {
      all.sum += shared[first + warp].sum;
      all.product += shared[first + warp].product;
    }
    return {all.sum / width, all.product / width};
  }

  const LayerNormBackward& args_;
  float sums_[3][kVectors][kCount] = {};
  int row_parity_ = 0;
};

template <typename T, int kCount, int kVectors>
__global__ void __launch_bounds__(Occupancy<kCount * kVectors>::kThreads,
                                  Occupancy<kCount * kVectors>::kBlocks)
    backward_kernel(LayerNormBackward args) {
  extern __shared__ float columns[];
  __shared__ Pair pairs[2][kMostWarps];
  BackwardGroup<T, kCount, kVectors> group(args);
  for (std::int64_t row = std::int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
       row < args.rows; row += std::int64_t{gridDim.x} * blockDim.y) {
    group.add_row(row, pairs);
  }
  group.leave_sums(columns);
}

template <typename T, int kCount, int kVectors>
void launch_fitting(const LayerNormBackward& args, CUstream_st* stream) {
  using Fits = Occupancy<kCount * kVectors>;
  // A group has at most 256 threads.
  if constexpr (kCount * kVectors < kMostElements) {
    if (args.width > std::int64_t{256} * kCount * kVectors) {
      return launch_fitting<T, kCount, kVectors * 2>(args, stream);
    }
  }
  const auto threads =
      static_cast<int>(blocks_for(args.width, kCount * kVectors * kWarp)) * kWarp;
  // The rows of sums of the groups have to fit into 48 KiB.
  const auto most = std::min<std::int64_t>(
      {Fits::kOneWarp ? Fits::kRowWarps : kMostGroups, Fits::kThreads / threads,
       (48 * 1024 - 1024) / (4 * args.width)});
  const dim3 block(threads, static_cast<unsigned>(std::max<std::int64_t>(most, 1)));
  const auto parts = std::min<std::int64_t>(
      Fits::kOneWarp ? std::min<std::int64_t>(kLayerNormParts, num_processors())
                     : kLayerNormParts,
      blocks_for(args.rows, block.y));
  backward_kernel<T, kCount, kVectors>
      <<<static_cast<unsigned>(parts), block, block.y * args.width * sizeof(float),
         stream>>>(args);
  check_launch("layer_norm_backward");
  add_parts<T>({.parts = args.workspace,
                .sums = {args.weight_gradient, args.bias_gradient, args.out_sums},
                .num_sums = 3,
                .num_parts = parts,
                .width = args.width},
               stream);
}

template <typename T>
void launch(const LayerNormBackward& args, CUstream_st* stream) {
  const bool aligned = args.width % kVector<T> == 0 && is_aligned(args.in) &&
                       is_aligned(args.gradient) && is_aligned(args.through) &&
                       is_aligned(args.out) && is_aligned(args.weight);
  constexpr int kWide = kVector<T> * kWarp;  // of a warp, at once
  if (aligned && sizeof(T) == 2 && args.width > 2 * kWide && args.width <= 3 * kWide) {
    launch_fitting<T, kVector<T>, 3>(args, stream);
  } else if (aligned && sizeof(T) == 2 && args.width > 3 * kWide &&
             args.width <= kWarpRow) {
    launch_fitting<T, kVector<T>, 4>(args, stream);
  } else if (aligned) {
    launch_fitting<T, kVector<T>, 1>(args, stream);
  } else {
    launch_fitting<T, 1, 1>(args, stream);
  }
}

}  // namespace

void layer_norm_backward_cuda(const LayerNormBackward& args, CUstream_st* stream) {
  if (args.rows * args.width == 0) return;
  if (args.width > kWidestLayerNorm) {
    throw Error(Fault::internal, "kernels: a LayerNorm over ", args.width,
                " elements, more than ", kWidestLayerNorm);
  }
  with_device_element(args.number,
                      [&](auto element) { launch<decltype(element)>(args, stream); });
  check_launch("layer_norm_backward");
}

}  // namespace lockstep::kernels
