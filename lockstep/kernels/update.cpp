#include "lockstep/kernels/update.h"

#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/kernels/detail/halves.h"
#include "lockstep/kernels/detail/rules.h"
#include "lockstep/kernels/detail/vectors.h"
#include "lockstep/kernels/workers.h"

namespace lockstep::kernels {
namespace {

using detail::Bf16;
using detail::F16;

// The type of the rounded copy of the weights, where there is none.
struct NoCopy {};
template <typename Copy>
constexpr bool kRounds = !std::is_same_v<Copy, NoCopy>;

struct Root {
  template <typename T>
  [[gnu::always_inline]] T operator()(T value) const {
    return __builtin_sqrt(value);
  }
  [[gnu::always_inline]] float operator()(float value) const {
    return __builtin_sqrtf(value);
  }
};

// Updates the elements of one chunk. T computes, G is the type of a stored gradient.
template <typename R, typename T, typename G, typename Copy>
struct ChunkLoop {
  const UpdateArgs& update;
  const Chunk& chunk;

  [[gnu::always_inline]] void operator()() const {
    const double factor = update.factor != nullptr ? *update.factor : 1;
    const auto& hyper = update.hyper_at != nullptr ? *update.hyper_at : update.hyper;
    const auto c = detail::coefficients<T>(hyper, chunk, factor, Root{});
    T* __restrict weights = static_cast<T*>(update.weights) + chunk.begin;
    const G* __restrict gradients =
        static_cast<const G*>(update.gradients) + chunk.begin;
    T* __restrict first = static_cast<T*>(update.first);
    T* __restrict second = static_cast<T*>(update.second);
    std::uint16_t* __restrict copies = update.rounded;
    if constexpr (R::kStates > 0) first += chunk.begin;
    if constexpr (R::kStates > 1) second += chunk.begin;
    if constexpr (kRounds<Copy>) copies += chunk.begin;
    const std::int64_t count = chunk.end - chunk.begin;
    for (std::int64_t i = 0; i < count; ++i) {
      T weight = weights[i], one = 0, two = 0;
      if constexpr (R::kStates > 0) one = first[i];
      if constexpr (R::kStates > 1) two = second[i];
      const T gradient = detail::limited(
          static_cast<T>(detail::widened(gradients[i]) * c.scale), c.clip);
      R::apply(weight, one, two, gradient, c, Root{});
      weights[i] = weight;
      if constexpr (R::kStates > 0) first[i] = one;
      if constexpr (R::kStates > 1) second[i] = two;
      if constexpr (kRounds<Copy>) copies[i] = detail::rounded<Copy>(weight).bits;
    }
  }
};

template <typename R, typename T, typename G, typename Copy>
void run(const UpdateArgs& update, Workers& workers) {
  workers.run([&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin; i < end; ++i) {
      detail::run_with_vectors(ChunkLoop<R, T, G, Copy>{update, update.chunks[i]});
    }
  });
}

template <typename R>
void run(const UpdateArgs& update, Workers& workers) {
  switch (update.storage) {
    case Storage::f32:
      return run<R, float, float, NoCopy>(update, workers);
    case Storage::f64:
      return run<R, double, double, NoCopy>(update, workers);
    case Storage::bf16:
      return run<R, float, Bf16, Bf16>(update, workers);
    case Storage::bf16_with_f32_gradients:
      return run<R, float, float, Bf16>(update, workers);
    case Storage::f16:
      return run<R, float, F16, F16>(update, workers);
    case Storage::f16_with_f32_gradients:
      return run<R, float, float, F16>(update, workers);
  }
}

}  // namespace

void update_cpu(const UpdateArgs& update, Workers& workers) {
  if (update.skip != nullptr && *update.skip != 0) return;
  switch (update.rule) {
    case Rule::sgd:
      return run<detail::Sgd>(update, workers);
    case Rule::momentum:
      return run<detail::Momentum>(update, workers);
    case Rule::nesterov:
      return run<detail::Nesterov>(update, workers);
    case Rule::adam:
      return run<detail::Adam>(update, workers);
    case Rule::adamw:
      return run<detail::AdamW>(update, workers);
    case Rule::lion:
      return run<detail::Lion>(update, workers);
  }
}

}  // namespace lockstep::kernels
