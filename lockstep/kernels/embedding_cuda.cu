#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/device.h"

namespace lockstep::kernels {
namespace {

using namespace detail;

constexpr int kEmbeddingThreads = 256;

template <typename T, int kCount>
__global__ void embedding_kernel(Embedding args) {
  const std::int64_t i =
      (std::int64_t{blockIdx.x} * kEmbeddingThreads + threadIdx.x) * kCount;
  if (i >= args.count * args.width) return;
  const std::int64_t row = i / args.width, column = i % args.width;
  const std::int64_t position =
      args.positions != nullptr ? args.positions[row] : row % args.length;
  const auto a = load<kCount>(static_cast<const T*>(args.tokens_weight) +
                              args.tokens[row] * args.width + column);
  const auto b = load<kCount>(static_cast<const T*>(args.positions_weight) +
                              position * args.width + column);
  Vector<T, kCount> out;
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    out.at[k] = narrow<T>(wide(a.at[k]) + wide(b.at[k]));
  }
  store<kCount>(static_cast<T*>(args.out) + i, out);
}

constexpr int kKeyThreads = 32;  // along a row
constexpr int kKeyRows = 8;      // summed at once

// A block begins at a key that differs from the one before it, and sums the rows of
// that key: kKeyRows threads share a column, each adds every n-th row. A grid row is a
// piece of the columns.
template <typename T, int kCount>
__global__ void embedding_backward_kernel(EmbeddingBackward args) {
  const std::int64_t begin = blockIdx.x;
  const std::int64_t key = args.keys[begin];
  if (begin > 0 && args.keys[begin - 1] == key) return;
  __shared__ float shared[kKeyRows][kKeyThreads * kCount];
  const std::int64_t column =
      (std::int64_t{blockIdx.y} * kKeyThreads + threadIdx.x) * kCount;
  const bool inside = column < args.width;
  float sums[kCount] = {};
  for (std::int64_t i = begin + threadIdx.y; inside && i < args.count; i += kKeyRows) {
    if (args.keys[i] != key) break;
    const auto row = load<kCount>(static_cast<const T*>(args.gradient) +
                                  args.order[i] * args.width + column);
#pragma unroll
    for (int k = 0; k < kCount; ++k) sums[k] += wide(row.at[k]);
  }
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    shared[threadIdx.y][threadIdx.x * kCount + k] = sums[k];
  }
  __syncthreads();
  if (threadIdx.y != 0 || !inside) return;
  auto* place = static_cast<T*>(args.weight_gradient) + key * args.width + column;
  Vector<T, kCount> out{};
  if (args.adds) out = load<kCount>(place);
#pragma unroll
  for (int k = 0; k < kCount; ++k) {
    float sum = 0;
    for (int y = 0; y < kKeyRows; ++y) sum += shared[y][threadIdx.x * kCount + k];
    out.at[k] = narrow<T>(args.adds ? wide(out.at[k]) + sum : sum);
  }
  store<kCount>(place, out);
}

template <typename T, int kCount>
void launch(const Embedding& args, CUstream_st* stream) {
  embedding_kernel<T, kCount>
      <<<blocks_for(args.count * args.width, std::int64_t{kEmbeddingThreads} * kCount),
         kEmbeddingThreads, 0, stream>>>(args);
}

template <typename T, int kCount>
void launch(const EmbeddingBackward& args, CUstream_st* stream) {
  const dim3 blocks(static_cast<unsigned>(args.count),
                    blocks_for(args.width, kKeyThreads * kCount));
  embedding_backward_kernel<T, kCount>
      <<<blocks, dim3(kKeyThreads, kKeyRows), 0, stream>>>(args);
}

}  // namespace

void embedding_cuda(const Embedding& args, CUstream_st* stream) {
  if (args.count * args.width == 0) return;
  with_device_element(args.number, [&](auto element) {
    using T = decltype(element);
    if (args.width % kVector<T> == 0 && is_aligned(args.out) &&
        is_aligned(args.tokens_weight) && is_aligned(args.positions_weight)) {
      launch<T, kVector<T>>(args, stream);
    } else {
      launch<T, 1>(args, stream);
    }
  });
  check_launch("embedding");
}

void embedding_backward_cuda(const EmbeddingBackward& args, CUstream_st* stream) {
  if (args.count * args.width == 0) return;
  with_device_element(args.number, [&](auto element) {
    using T = decltype(element);
    if (args.width % kVector<T> == 0 && is_aligned(args.gradient) &&
        is_aligned(args.weight_gradient)) {
      launch<T, kVector<T>>(args, stream);
    } else {
      launch<T, 1>(args, stream);
    }
  });
  check_launch("embedding_backward");
}

}  // namespace lockstep::kernels
