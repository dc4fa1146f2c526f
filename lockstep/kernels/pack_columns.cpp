#include "lockstep/kernels/pack_columns.h"

#include <vector>

#include "lockstep/kernels/detail/elements.h"

namespace lockstep::kernels {

void pack_columns_cpu(const PackColumns& args) {
  detail::with_element(args.number, [&](auto element) {
    using T = decltype(element);
    const auto whole = args.num_parts * args.width;
    std::vector<double> sums(static_cast<std::size_t>(whole));
    for (std::int64_t i = 0; i < args.rows; ++i) {
      for (std::int64_t j = 0; j < whole; ++j) {
        const auto* part = static_cast<const T*>(args.parts[j / args.width]);
        const T value = part[i * args.width + j % args.width];
        static_cast<T*>(args.out)[i * whole + j] = value;
        sums[static_cast<std::size_t>(j)] += detail::widened(value);
      }
    }
    if (args.sums.at == nullptr) return;
    for (std::int64_t j = 0; j < whole; ++j) {
      detail::put_sum(static_cast<T*>(args.sums.at)[j], args.sums.adds,
                      sums[static_cast<std::size_t>(j)]);
    }
  });
}

}  // namespace lockstep::kernels
