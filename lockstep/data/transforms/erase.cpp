#include "lockstep/data/transforms/erase.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace lockstep::data {
namespace {

template <typename T>
T rounded(float value) {
  if constexpr (std::is_same_v<T, float>) {
    return value;
  } else {
    return static_cast<T>(std::lround(std::clamp(value, 0.0F, 255.0F)));
  }
}

}  // namespace

template <typename T>
void erase(const Image<T>& image, const Box& box, std::span<const float> values) {
  for (std::int64_t c = 0; c < image.channels; ++c) {
    const T value = rounded<T>(values[static_cast<std::size_t>(c)]);
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      T* row = image.row(c, y) + box.left;
      std::fill(row, row + box.width, value);
    }
  }
}

Box cutout_box(Random& random, const ImageSize& image, std::int64_t side) {
  const auto [height, width] = image;
  const auto y = random.below(height) - side / 2;
  const auto x = random.below(width) - side / 2;
  const auto top = std::max<std::int64_t>(y, 0);
  const auto left = std::max<std::int64_t>(x, 0);
  return {top, left, std::min(y + side, height) - top,
          std::min(x + side, width) - left};
}

std::optional<Box> erasing_box(Random& random, const ImageSize& image) {
  const auto [height, width] = image;
  constexpr int kTries = 10;
  for (int i = 0; i < kTries; ++i) {
    const double area =
        random.uniform(0.02, 0.33) * static_cast<double>(height * width);
    const double ratio = std::exp(random.uniform(std::log(0.3), std::log(3.3)));
    const auto h = std::llround(std::sqrt(area * ratio));
    const auto w = std::llround(std::sqrt(area / ratio));
    if (h < 1 || w < 1 || h >= height || w >= width) continue;
    const auto top = random.below(height - h + 1);
    return Box{top, random.below(width - w + 1), h, w};
  }
  return std::nullopt;
}

template void erase(const Image<std::uint8_t>&, const Box&, std::span<const float>);
template void erase(const Image<float>&, const Box&, std::span<const float>);

}  // namespace lockstep::data
