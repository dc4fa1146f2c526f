#include "lockstep/data/transforms/mix.h"

#include <algorithm>
#include <cmath>
#include <type_traits>

namespace lockstep::data {
namespace {

template <typename T>
void average(T* a, T* b, std::int64_t count, float own) {
  const float other = 1 - own;
  constexpr float kHalf = std::is_same_v<T, float> ? 0.0F : 0.5F;  // rounds bytes
  for (std::int64_t i = 0; i < count; ++i) {
    const auto x = static_cast<float>(a[i]);
    const auto y = static_cast<float>(b[i]);
    a[i] = static_cast<T>(own * x + other * y + kHalf);
    b[i] = static_cast<T>(own * y + other * x + kHalf);
  }
}

Blend draw_cut(Random& random, double alpha, const ImageSize& image) {
  const auto [height, width] = image;
  const double drawn = random.beta(alpha);
  const double cut = std::sqrt(std::min(drawn, 1 - drawn));
  const auto h = static_cast<std::int64_t>(cut * static_cast<double>(height));
  const auto w = static_cast<std::int64_t>(cut * static_cast<double>(width));
  const auto top = random.below(height - h + 1);
  const Box box{top, random.below(width - w + 1), h, w};
  // The share is that of the exchanged part, not of the drawn box.
  const auto share = static_cast<float>(h * w) / static_cast<float>(height * width);
  return {.own = 1 - share, .cut = true, .box = box};
}

}  // namespace

Blend draw_blend(Random& random, const Mixing& mixing, const ImageSize& image) {
  const bool cuts = mixing.cutmix > 0 && (mixing.mixup <= 0 || random.uniform() < 0.5);
  if (cuts) return draw_cut(random, mixing.cutmix, image);
  const double drawn = random.beta(mixing.mixup);
  return {.own = static_cast<float>(std::max(drawn, 1 - drawn))};
}

template <typename T>
void mix(const Image<T>& a, const Image<T>& b, const Blend& blend) {
  if (!blend.cut) {
    return average(a.data, b.data, a.channels * a.height * a.width, blend.own);
  }
  const auto& box = blend.box;
  for (std::int64_t c = 0; c < a.channels; ++c) {
    for (std::int64_t y = box.top; y < box.top + box.height; ++y) {
      T* row = a.row(c, y) + box.left;
      std::swap_ranges(row, row + box.width, b.row(c, y) + box.left);
    }
  }
}

template void mix(const Image<std::uint8_t>&, const Image<std::uint8_t>&, const Blend&);
template void mix(const Image<float>&, const Image<float>&, const Blend&);

}  // namespace lockstep::data
