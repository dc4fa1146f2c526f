#include "lockstep/kernels/embedding.h"

#include <vector>

#include "lockstep/kernels/detail/elements.h"

namespace lockstep::kernels {

void embedding_cpu(const Embedding& args) {
  detail::with_element(args.number, [&](auto element) {
    using T = decltype(element);
    auto* out = static_cast<T*>(args.out);
    for (std::int64_t i = 0; i < args.count; ++i) {
      const auto position =
          args.positions != nullptr ? args.positions[i] : i % args.length;
      const auto* a =
          static_cast<const T*>(args.tokens_weight) + args.tokens[i] * args.width;
      const auto* b =
          static_cast<const T*>(args.positions_weight) + position * args.width;
      for (std::int64_t j = 0; j < args.width; ++j) {
        detail::put(*out++, detail::widened(a[j]) + detail::widened(b[j]));
      }
    }
  });
}

void embedding_backward_cpu(const EmbeddingBackward& args) {
  detail::with_element(args.number, [&](auto element) {
    using T = decltype(element);
    std::vector<double> sums(static_cast<std::size_t>(args.width));
    for (std::int64_t i = 0; i < args.count;) {
      const auto key = args.keys[i];
      std::fill(sums.begin(), sums.end(), 0);
      for (; i < args.count && args.keys[i] == key; ++i) {
        const auto* row =
            static_cast<const T*>(args.gradient) + args.order[i] * args.width;
        for (auto& sum : sums) sum += detail::widened(*row++);
      }
      auto* at = static_cast<T*>(args.weight_gradient) + key * args.width;
      for (const auto sum : sums) {
        detail::put_sum(*at++, args.adds, sum);
      }
    }
  });
}

}  // namespace lockstep::kernels
