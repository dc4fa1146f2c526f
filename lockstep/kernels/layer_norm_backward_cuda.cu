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

// Waits for the threads of one group, which are whole warps.
__device__ void wait_for_group(int group, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(group + 1), "r"(threads) : "memory");
}

struct Pair {
  float sum, product;
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
    Vector<T, kCount> gradient[kVectors], through[kVectors];
    float normal[kVectors][kCount];
    Pair own{0, 0};
#pragma unroll
    for (int v = 0; v < kVectors; ++v) {
      const int column = column_of(v);
      if (column >= args_.width) continue;
      const auto in = load<kCount>(static_cast<const T*>(args_.in) + first + column);
      gradient[v] =
          load<kCount>(static_cast<const T*>(args_.gradient) + first + column);
      if (args_.through != nullptr) {
        through[v] =
            load<kCount>(static_cast<const T*>(args_.through) + first + column);
      }
      const auto weight = load<kCount>(static_cast<const T*>(args_.weight) + column);
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        normal[v][k] = (wide(in.at[k]) - mean) * inverse;
        const float g = wide(gradient[v].at[k]) * wide(weight.at[k]);
        own.sum += g;
        own.product += g * normal[v][k];
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
        float total =
            inverse * (g * wide(weight.at[k]) - all.sum - normal[v][k] * all.product);
        if (args_.through != nullptr) total += wide(through[v].at[k]);
        sums_[0][v][k] += g * normal[v][k];
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
    const int warps = blockDim.x / kWarp, first = threadIdx.y * warps;
    if (threadIdx.x % kWarp == 0) shared[first + threadIdx.x / kWarp] = own;
    wait_for_group(threadIdx.y, blockDim.x);
    Pair all{0, 0};
    for (int warp = 0; warp < warps; ++warp) {
      all.sum += shared[first + warp].sum;
      all.product += shared[first + warp].product;
    }
    const auto width = static_cast<float>(args_.width);
    return {all.sum / width, all.product / width};
  }

  const LayerNormBackward& args_;
  float sums_[3][kVectors][kCount] = {};
  int row_parity_ = 0;
};

template <typename T, int kCount, int kVectors>
__global__ void __launch_bounds__(kMostThreads, kCount* kVectors <= 8 ? 2 : 1)
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
      {kMostGroups, kMostThreads / threads, (48 * 1024 - 1024) / (4 * args.width)});
  const dim3 block(threads, static_cast<unsigned>(std::max<std::int64_t>(most, 1)));
  const auto parts =
      std::min<std::int64_t>(kLayerNormParts, blocks_for(args.rows, block.y));
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
  if (aligned) {
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
