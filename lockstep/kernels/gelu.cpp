#include "lockstep/kernels/gelu.h"

#include <cmath>
#include <vector>

#include "lockstep/kernels/detail/elements.h"

namespace lockstep::kernels {
namespace {

constexpr double kSlope = 0.79788456080286535588;  // sqrt(2 / pi)
constexpr double kCubic = 0.044715;

double gelu(double x) {
  return 0.5 * x * (1 + std::tanh(kSlope * (x + kCubic * x * x * x)));
}

double gelu_slope(double x) {
  const double t = std::tanh(kSlope * (x + kCubic * x * x * x));
  return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSlope * (1 + 3 * kCubic * x * x);
}

}  // namespace

void gelu_cpu(const Gelu& args) {
  detail::with_element(args.number, [&](auto element) {
    using T = decltype(element);
    const auto* in = static_cast<const T*>(args.in);
    auto* out = static_cast<T*>(args.out);
    for (std::int64_t i = 0; i < args.count; ++i) {
      detail::put(out[i], static_cast<float>(gelu(detail::widened(in[i]))));
    }
  });
}

void gelu_backward_cpu(const GeluBackward& args) {
  detail::with_element(args.number, [&](auto element) {
    using T = decltype(element);
    const auto* in = static_cast<const T*>(args.in);
    const auto* gradient = static_cast<const T*>(args.gradient);
    auto* out = static_cast<T*>(args.out);
    std::vector<double> sums(static_cast<std::size_t>(args.width));
    for (std::int64_t i = 0; i < args.rows * args.width; ++i) {
      const double slope = gelu_slope(detail::widened(in[i]));
      const double value = slope * detail::widened(gradient[i]);
      sums[static_cast<std::size_t>(i % args.width)] += value;
      detail::put(out[i], static_cast<float>(value));
    }
    if (args.sums.at == nullptr) return;
    for (std::int64_t j = 0; j < args.width; ++j) {
      detail::put_sum(static_cast<T*>(args.sums.at)[j], args.sums.adds,
                      sums[static_cast<std::size_t>(j)]);
    }
  });
}

}  // namespace lockstep::kernels
