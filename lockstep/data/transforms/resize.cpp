#include "lockstep/data/transforms/resize.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

#include "lockstep/base/error.h"
#include "lockstep/data/detail/vectors.h"

namespace lockstep::data {
namespace {

template <typename T>
T from_float(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return static_cast<T>(std::clamp(value, 0.0F, 255.0F) + 0.5F);
  }
}

LOCKSTEP_VECTORS
void add_scaled(const std::uint8_t* from, float weight, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) {
    to[i] += weight * static_cast<float>(from[i]);
  }
}

LOCKSTEP_VECTORS
void add_scaled(const float* from, float weight, std::int64_t count, float* to) {
  for (std::int64_t i = 0; i < count; ++i) to[i] += weight * from[i];
}

}  // namespace

void Resizer::Axis::plan(std::int64_t from, std::int64_t to) {
  if (in == from && out == to) return;
  in = from;
  out = to;
  const double scale = static_cast<double>(in) / static_cast<double>(out);
  const double support = std::max(scale, 1.0);
  taps = std::min(in, 2 * static_cast<std::int64_t>(std::ceil(support)) + 1);
  begin.assign(static_cast<std::size_t>(out), 0);
  weights.assign(static_cast<std::size_t>(out * taps), 0.0F);
  for (std::int64_t i = 0; i < out; ++i) {
    const double centre = (static_cast<double>(i) + 0.5) * scale;
    const auto first =
        std::max<std::int64_t>(0, static_cast<std::int64_t>(centre - support + 0.5));
    const auto last = std::min(in, static_cast<std::int64_t>(centre + support + 0.5));
    // A run of `taps` inputs that ends inside; weights outside of [first, last) stay 0.
    const auto at = std::min(first, in - taps);
    double sum = 0;
    float* weight = weights.data() + i * taps;
    for (auto j = first; j < last; ++j) {
      const double distance =
          std::abs((static_cast<double>(j) + 0.5 - centre) / support);
      const double value = std::max(0.0, 1 - distance);
      weight[j - at] = static_cast<float>(value);
      sum += value;
    }
    for (std::int64_t j = 0; j < taps; ++j) weight[j] /= static_cast<float>(sum);
    begin[static_cast<std::size_t>(i)] = at;
  }
}

// Resizes vertically first: whole rows, which vectorizes.
template <typename T>
void Resizer::rows(const Pixels<T>& in, std::int64_t y) {
  const auto count = in.width * in.step;
  row_.assign(static_cast<std::size_t>(count + 4), 0.0F);  // columns() looks ahead
  const float* weights = y_.weights.data() + y * y_.taps;
  for (std::int64_t j = 0; j < y_.taps; ++j) {
    const float weight = weights[j];
    if (weight == 0) continue;
    const T* from =
        in.data + (y_.begin[static_cast<std::size_t>(y)] + j) * in.row_stride;
    add_scaled(from, weight, count, row_.data());
  }
}

// Resizes a pixel at a time: four values fill a vector register, of which the last is
// the next pixel's and is not used.
template <typename T>
void Resizer::columns(const Image<T>& out, std::int64_t step, std::int64_t y) const {
  constexpr std::int64_t kValues = 4;
  for (std::int64_t x = 0; x < out.width; ++x) {
    const float* from = row_.data() + x_.begin[static_cast<std::size_t>(x)] * step;
    const float* weights = x_.weights.data() + x * x_.taps;
    float sum[kValues] = {};
    for (std::int64_t j = 0; j < x_.taps; ++j, from += step) {
      for (std::int64_t c = 0; c < kValues; ++c) sum[c] += weights[j] * from[c];
    }
    for (std::int64_t c = 0; c < out.channels; ++c) {
      out.row(c, y)[x] = from_float<T>(sum[c]);
    }
  }
}

template <typename T>
void Resizer::resize(const Pixels<T>& in, const Image<T>& out) {
  LOCKSTEP_CHECK(in.step == out.channels && in.step <= 4);
  x_.plan(in.width, out.width);
  y_.plan(in.height, out.height);
  for (std::int64_t y = 0; y < out.height; ++y) {
    rows(in, y);
    columns(out, in.step, y);
  }
}

template <typename T>
void Resizer::resize(const Image<const T>& in, const Image<T>& out) {
  for (std::int64_t c = 0; c < in.channels; ++c) {
    resize(Pixels<T>{in.row(c, 0), in.height, in.width, 1, in.width},
           Image<T>{out.row(c, 0), 1, out.height, out.width});
  }
}

template void Resizer::resize(const Pixels<std::uint8_t>&, const Image<std::uint8_t>&);
template void Resizer::resize(const Image<const std::uint8_t>&,
                              const Image<std::uint8_t>&);
template void Resizer::resize(const Image<const float>&, const Image<float>&);

}  // namespace lockstep::data
