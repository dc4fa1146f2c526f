#include "lockstep/kernels/cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lockstep/kernels/detail/elements.h"

namespace lockstep::kernels {
namespace {

template <typename T>
float replace_row(const CrossEntropy& args, std::int64_t row, double scale) {
  auto* logits = static_cast<T*>(args.logits) + row * args.columns;
  const auto target = args.targets[row];
  if (target < 0 || target >= args.classes) {
    std::fill_n(logits, args.columns, T{});
    return 0;
  }
  double most = -std::numeric_limits<double>::infinity(), sum = 0;
  for (std::int64_t j = 0; j < args.classes; ++j) {
    most = std::max(most, double{detail::widened(logits[j])});
  }
  for (std::int64_t j = 0; j < args.classes; ++j) {
    sum += std::exp(detail::widened(logits[j]) - most);
  }
  const double loss = std::log(sum) + most - detail::widened(logits[target]);
  for (std::int64_t j = 0; j < args.classes; ++j) {
    const double share = std::exp(detail::widened(logits[j]) - most) / sum;
    detail::put(logits[j],
                static_cast<float>(scale * (share - (j == target ? 1.0 : 0.0))));
  }
  std::fill(logits + args.classes, logits + args.columns, T{});
  return static_cast<float>(loss);
}

}  // namespace

void cross_entropy_cpu(const CrossEntropy& args) {
  const double factor = args.scale_at != nullptr ? *args.scale_at : 1;
  detail::with_element(args.number, [&](auto element) {
    for (std::int64_t row = 0; row < args.rows; ++row) {
      args.losses[row] =
          replace_row<decltype(element)>(args, row, factor * double{args.scale});
    }
  });
}

}  // namespace lockstep::kernels
