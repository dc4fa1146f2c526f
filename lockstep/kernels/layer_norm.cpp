#include "lockstep/kernels/layer_norm.h"

#include <cmath>
#include <vector>

#include "lockstep/kernels/detail/elements.h"

namespace lockstep::kernels {
namespace {

using detail::put;
using detail::widened;

template <typename T>
void normalize_row(const LayerNorm& args, std::int64_t row, const T* x) {
  const auto width = args.width;
  double sum = 0, squares = 0;
  for (std::int64_t j = 0; j < width; ++j) sum += widened(x[j]);
  const double mean = sum / static_cast<double>(width);
  for (std::int64_t j = 0; j < width; ++j) {
    const double apart = widened(x[j]) - mean;
    squares += apart * apart;
  }
  const double inverse = 1 / std::sqrt(squares / static_cast<double>(width) + args.eps);
  args.mean[row] = static_cast<float>(mean);
  args.inverse[row] = static_cast<float>(inverse);
  const auto* weight = static_cast<const T*>(args.weight);
  const auto* bias = static_cast<const T*>(args.bias);
  auto* out = static_cast<T*>(args.out) + row * width;
  for (std::int64_t j = 0; j < width; ++j) {
    const double normal = (widened(x[j]) - mean) * inverse;
    put(out[j],
        static_cast<float>(normal * widened(weight[j]) + double{widened(bias[j])}));
  }
}

template <typename T>
void run_layer_norm(const LayerNorm& args) {
  for (std::int64_t row = 0; row < args.rows; ++row) {
    const auto first = row * args.width;
    const auto* x = static_cast<const T*>(args.in) + first;
    if (args.added != nullptr) {
      const auto* added = static_cast<const T*>(args.added) + first;
      auto* sum = static_cast<T*>(args.sum) + first;
      for (std::int64_t j = 0; j < args.width; ++j) {
        put(sum[j], widened(x[j]) + widened(added[j]));
      }
      x = sum;
    }
    normalize_row(args, row, x);
  }
}

struct ParameterSums {
  explicit ParameterSums(std::int64_t width)
      : weight(static_cast<std::size_t>(width)), bias(weight), out(weight) {}
  std::vector<double> weight, bias, out;
};

template <typename T>
void backward_row(const LayerNormBackward& args, std::int64_t row,
                  ParameterSums& sums) {
  const auto width = args.width, first = row * width;
  const auto* gradient = static_cast<const T*>(args.gradient) + first;
  const auto* in = static_cast<const T*>(args.in) + first;
  const auto* weight = static_cast<const T*>(args.weight);
  const auto* through = static_cast<const T*>(args.through);
  auto* out = static_cast<T*>(args.out) + first;
  const double mean = args.mean[row], inverse = args.inverse[row];
  const auto normal = [&](std::int64_t j) { return (widened(in[j]) - mean) * inverse; };
  double sum = 0, product = 0;
  for (std::int64_t j = 0; j < width; ++j) {
    const double g = double{widened(gradient[j])} * widened(weight[j]);
    sum += g;
    product += g * normal(j);
  }
  sum /= static_cast<double>(width);
  product /= static_cast<double>(width);
  for (std::int64_t j = 0; j < width; ++j) {
    const auto at = static_cast<std::size_t>(j);
    const double g = widened(gradient[j]), n = normal(j);
    const double around = through != nullptr ? widened(through[first + j]) : 0;
    const double total =
        inverse * (g * widened(weight[j]) - sum - n * product) + around;
    sums.weight[at] += g * n;
    sums.bias[at] += g;
    sums.out[at] += total;
    put(out[j], static_cast<float>(total));
  }
}

template <typename T>
void put_sums(const ColumnSums& to, const std::vector<double>& sums) {
  if (to.at == nullptr) return;
  for (std::size_t j = 0; j < sums.size(); ++j) {
    detail::put_sum(static_cast<T*>(to.at)[j], to.adds, sums[j]);
  }
}

}  // namespace

void layer_norm_cpu(const LayerNorm& args) {
  detail::with_element(args.number,
                       [&](auto element) { run_layer_norm<decltype(element)>(args); });
}

void layer_norm_backward_cpu(const LayerNormBackward& args) {
  detail::with_element(args.number, [&](auto element) {
    using T = decltype(element);
    ParameterSums sums(args.width);
    for (std::int64_t row = 0; row < args.rows; ++row) {
      backward_row<T>(args, row, sums);
    }
    put_sums<T>(args.weight_gradient, sums.weight);
    put_sums<T>(args.bias_gradient, sums.bias);
    put_sums<T>(args.out_sums, sums.out);
  });
}

}  // namespace lockstep::kernels
