#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/device.h"

namespace lockstep::kernels {
namespace {

using namespace detail;

constexpr int kRowsPerBlock = 8;  // a warp each

// A warp normalises a row, which it keeps in registers: kVectors vectors of kCount
// elements a lane.
template <typename T, int kCount, int kVectors>
__global__ void __launch_bounds__(kRowsPerBlock* kWarp)
    layer_norm_kernel(LayerNorm args) {
  const std::int64_t row =
      std::int64_t{blockIdx.x} * kRowsPerBlock + threadIdx.x / kWarp;
  if (row >= args.rows) return;
  const int lane = threadIdx.x % kWarp;
  const std::int64_t first = row * args.width;
  const auto* in = static_cast<const T*>(args.in) + first;
  const auto* added = static_cast<const T*>(args.added) + first;
  float x[kVectors][kCount];
  float sum = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * kWarp + lane) * kCount;
    if (column < args.width) {
      auto read = load<kCount>(in + column);
      if (args.added != nullptr) {
        const auto other = load<kCount>(added + column);
#pragma unroll
        for (int k = 0; k < kCount; ++k) {
          read.at[k] = narrow<T>(wide(read.at[k]) + wide(other.at[k]));
        }
        store<kCount>(static_cast<T*>(args.sum) + first + column, read);
      }
#pragma unroll
      for (int k = 0; k < kCount; ++k) sum += x[v][k] = wide(read.at[k]);
    }
  }
  const float mean = warp_sum(sum) / static_cast<float>(args.width);
  float squares = 0;
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    if ((v * kWarp + lane) * kCount < args.width) {
#pragma unroll
      for (int k = 0; k < kCount; ++k) squares += (x[v][k] - mean) * (x[v][k] - mean);
    }
  }
  const float inverse =
      rsqrtf(warp_sum(squares) / static_cast<float>(args.width) + args.eps);
  if (lane == 0) {
    args.mean[row] = mean;
    args.inverse[row] = inverse;
  }
#pragma unroll
  for (int v = 0; v < kVectors; ++v) {
    const int column = (v * kWarp + lane) * kCount;
    if (column < args.width) {
      const auto weight = load<kCount>(static_cast<const T*>(args.weight) + column);
      const auto bias = load<kCount>(static_cast<const T*>(args.bias) + column);
      Vector<T, kCount> out;
#pragma unroll
      for (int k = 0; k < kCount; ++k) {
        out.at[k] = narrow<T>((x[v][k] - mean) * inverse * wide(weight.at[k]) +
                              wide(bias.at[k]));
      }
      store<kCount>(static_cast<T*>(args.out) + first + column, out);
    }
  }
}

template <typename T, int kCount, int kVectors>
void launch_fitting(const LayerNorm& args, CUstream_st* stream) {
  if constexpr (kVectors > 1) {
    constexpr int kFewer = kCount == 1 || kVectors > 8 ? kVectors / 2 : kVectors - 1;
    if (args.width <= std::int64_t{kFewer} * kCount * kWarp) {
      return launch_fitting<T, kCount, kFewer>(args, stream);
    }
  }
  layer_norm_kernel<T, kCount, kVectors>
      <<<blocks_for(args.rows, kRowsPerBlock), kRowsPerBlock * kWarp, 0, stream>>>(
          args);
}

template <typename T>
void launch(const LayerNorm& args, CUstream_st* stream) {
  const bool aligned = args.width % kVector<T> == 0 && is_aligned(args.in) &&
                       is_aligned(args.added) && is_aligned(args.sum) &&
                       is_aligned(args.out) && is_aligned(args.weight) &&
                       is_aligned(args.bias);
  if (aligned) {
    launch_fitting<T, kVector<T>, kWidestLayerNorm / kVector<T> / kWarp>(args, stream);
  } else {
    launch_fitting<T, 1, kWidestLayerNorm / kWarp>(args, stream);
  }
}

}  // namespace

void layer_norm_cuda(const LayerNorm& args, CUstream_st* stream) {
  if (args.rows * args.width == 0) return;
  if (args.width > kWidestLayerNorm) {
    throw Error(Fault::internal, "kernels: a LayerNorm over ", args.width,
                " elements, more than ", kWidestLayerNorm);
  }
  with_device_element(args.number,
                      [&](auto element) { launch<decltype(element)>(args, stream); });
  check_launch("layer_norm");
}

}  // namespace lockstep::kernels
