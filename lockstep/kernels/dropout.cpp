#include "lockstep/kernels/dropout.h"

#include <algorithm>

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include "lockstep/kernels/detail/chance.h"
#include "lockstep/kernels/detail/vectors.h"
#include "lockstep/kernels/workers.h"

namespace lockstep::kernels {
namespace {

// Drops elements [begin, begin + count) of one sample.
template <typename T, typename Wide>
struct DropoutPiece {
  T* out;
  const T* in;
  std::int64_t begin, count;
  detail::SampleKey key;
  std::uint32_t keep_below;
  Wide scale;

  [[gnu::always_inline]] void operator()() const {
    for (std::int64_t i = 0; i < count; ++i) {
      const auto drawn = detail::chance(key, static_cast<std::uint32_t>(begin + i));
      const Wide factor = drawn < keep_below ? scale : Wide(0);
      out[i] = static_cast<T>(static_cast<Wide>(in[i]) * factor);
    }
  }
};

template <typename T, typename Wide>
void drop(const Dropout& args, std::int64_t first, std::int64_t last) {
  auto* out = static_cast<T*>(args.out);
  const auto* in = static_cast<const T*>(args.in);
  while (first < last) {
    const auto sample = first / args.sample_elements;
    const auto begin = first % args.sample_elements;
    const auto count = std::min(last - first, args.sample_elements - begin);
    detail::run_with_vectors(
        DropoutPiece<T, Wide>{out + first, in + first, begin, count,
                              detail::key_of(args.key, args.first_sample + sample),
                              args.keep_below, static_cast<Wide>(args.scale)});
    first += count;
  }
}

void drop_any(const Dropout& args, std::int64_t first, std::int64_t last) {
  switch (args.number) {
    case Number::f32:
      return drop<float, float>(args, first, last);
    case Number::f64:
      return drop<double, double>(args, first, last);
    case Number::bf16:
      return drop<c10::BFloat16, float>(args, first, last);
    case Number::f16:
      return drop<c10::Half, float>(args, first, last);
  }
}

}  // namespace

void dropout_cpu(const Dropout& args, Workers* workers) {
  const auto total = args.num_samples * args.sample_elements;
  if (workers == nullptr) return drop_any(args, 0, total);
  workers->run([&](std::int64_t begin, std::int64_t end) {
    drop_any(args, begin * kDropoutBlock, std::min(end * kDropoutBlock, total));
  });
}

}  // namespace lockstep::kernels
