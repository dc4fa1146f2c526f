#include <type_traits>

#include <cuda_runtime.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/cuda.h"
#include "lockstep/kernels/detail/halves.h"
#include "lockstep/kernels/detail/rules.h"

namespace lockstep::kernels {
namespace {

using detail::Bf16;
using detail::F16;

constexpr int kThreads = 256;

// The type of the rounded copy of the weights, where there is none.
struct NoCopy {};
template <typename Copy>
constexpr bool kRounds = !std::is_same_v<Copy, NoCopy>;

struct Root {
  __device__ float operator()(float value) const { return sqrtf(value); }
  __device__ double operator()(double value) const { return sqrt(value); }
};

// Elements that a thread reads at once: 16 bytes of the widest type.
template <typename T>
constexpr int kWidth = 16 / sizeof(T);

template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T at[kCount];
};

template <typename R, typename T, typename G, typename Copy, int kCount>
__device__ void update_pack(const UpdateArgs& update, std::int64_t i,
                            const detail::Coefficients<T>& c) {
  using Numbers = Pack<T, kCount>;
  auto* weights = reinterpret_cast<Numbers*>(static_cast<T*>(update.weights) + i);
  auto* first = reinterpret_cast<Numbers*>(static_cast<T*>(update.first) + i);
  auto* second = reinterpret_cast<Numbers*>(static_cast<T*>(update.second) + i);
  const auto gradient = *reinterpret_cast<const Pack<G, kCount>*>(
      static_cast<const G*>(update.gradients) + i);
  Numbers weight = *weights, one{}, two{};
  if constexpr (R::kStates > 0) one = *first;
  if constexpr (R::kStates > 1) two = *second;
  Pack<std::uint16_t, kCount> copy{};
  for (int k = 0; k < kCount; ++k) {
    const T g = detail::limited(
        static_cast<T>(detail::widened(gradient.at[k]) * c.scale), c.clip);
    R::apply(weight.at[k], one.at[k], two.at[k], g, c, Root{});
    if constexpr (kRounds<Copy>) copy.at[k] = detail::rounded<Copy>(weight.at[k]).bits;
  }
  *weights = weight;
  if constexpr (R::kStates > 0) *first = one;
  if constexpr (R::kStates > 1) *second = two;
  if constexpr (kRounds<Copy>) {
    *reinterpret_cast<Pack<std::uint16_t, kCount>*>(update.rounded + i) = copy;
  }
}

template <typename R, typename T, typename G, typename Copy>
__global__ void update_kernel(UpdateArgs update, bool aligned) {
  __shared__ detail::Coefficients<T> c;
  if (update.skip != nullptr && *update.skip != 0) return;
  const Chunk chunk = update.chunks[blockIdx.x];
  if (threadIdx.x == 0) {
    const double factor = update.factor != nullptr ? *update.factor : 1;
    const Hyper hyper = update.hyper_at != nullptr ? *update.hyper_at : update.hyper;
    c = detail::coefficients<T>(hyper, chunk, factor, Root{});
  }
  __syncthreads();
  constexpr int kCount = kWidth<T>;
  std::int64_t tail = chunk.begin;
  if (aligned && chunk.begin % kCount == 0) {
    tail = chunk.begin + (chunk.end - chunk.begin) / kCount * kCount;
    for (auto i = chunk.begin + std::int64_t{threadIdx.x} * kCount; i < tail;
         i += kThreads * kCount) {
      update_pack<R, T, G, Copy, kCount>(update, i, c);
    }
  }
  for (auto i = tail + threadIdx.x; i < chunk.end; i += kThreads) {
    update_pack<R, T, G, Copy, 1>(update, i, c);
  }
}

bool is_aligned(const void* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer) % 16 == 0;  // null is, too
}

template <typename R, typename T, typename G, typename Copy>
void launch(const UpdateArgs& update, CUstream_st* stream) {
  const bool aligned = is_aligned(update.weights) && is_aligned(update.rounded) &&
                       is_aligned(update.gradients) && is_aligned(update.first) &&
                       is_aligned(update.second);
  update_kernel<R, T, G, Copy>
      <<<static_cast<unsigned>(update.num_chunks), kThreads, 0, stream>>>(update,
                                                                          aligned);
}

template <typename R>
void launch(const UpdateArgs& update, CUstream_st* stream) {
  switch (update.storage) {
    case Storage::f32:
      return launch<R, float, float, NoCopy>(update, stream);
    case Storage::f64:
      return launch<R, double, double, NoCopy>(update, stream);
    case Storage::bf16:
      return launch<R, float, Bf16, Bf16>(update, stream);
    case Storage::bf16_with_f32_gradients:
      return launch<R, float, float, Bf16>(update, stream);
    case Storage::f16:
      return launch<R, float, F16, F16>(update, stream);
    case Storage::f16_with_f32_gradients:
      return launch<R, float, float, F16>(update, stream);
  }
}

void launch_rule(const UpdateArgs& update, CUstream_st* stream) {
  switch (update.rule) {
    case Rule::sgd:
      return launch<detail::Sgd>(update, stream);
    case Rule::momentum:
      return launch<detail::Momentum>(update, stream);
    case Rule::nesterov:
      return launch<detail::Nesterov>(update, stream);
    case Rule::adam:
      return launch<detail::Adam>(update, stream);
    case Rule::adamw:
      return launch<detail::AdamW>(update, stream);
    case Rule::lion:
      return launch<detail::Lion>(update, stream);
  }
}

}  // namespace

void update_cuda(const UpdateArgs& update, CUstream_st* stream) {
  if (update.num_chunks == 0) return;
  launch_rule(update, stream);
  if (const auto status = cudaGetLastError(); status != cudaSuccess) {
    throw Error(Fault::hardware,
                "kernels: update did not start: ", cudaGetErrorString(status));
  }
}

}  // namespace lockstep::kernels
