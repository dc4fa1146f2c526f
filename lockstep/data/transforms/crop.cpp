#include "lockstep/data/transforms/crop.h"

#include <algorithm>

namespace lockstep::data {

template <typename T>
void crop(const Image<const T>& in, const Image<T>& out, const Offset& offset) {
  const auto [down, right] = offset;
  // The columns of `out` that lie inside of `in`.
  const auto begin = std::clamp<std::int64_t>(-right, 0, out.width);
  const auto end = std::clamp<std::int64_t>(in.width - right, begin, out.width);
  for (std::int64_t c = 0; c < out.channels; ++c) {
    for (std::int64_t y = 0; y < out.height; ++y) {
      T* to = out.row(c, y);
      if (y + down < 0 || y + down >= in.height) {
        std::fill(to, to + out.width, T{0});
        continue;
      }
      const T* from = in.row(c, y + down) + right;
      std::fill(to, to + begin, T{0});
      std::copy(from + begin, from + end, to + begin);
      std::fill(to + end, to + out.width, T{0});
    }
  }
}

template <typename T>
void flip(const Image<T>& image) {
  for (std::int64_t c = 0; c < image.channels; ++c) {
    for (std::int64_t y = 0; y < image.height; ++y) {
      T* row = image.row(c, y);
      std::reverse(row, row + image.width);
    }
  }
}

template void crop(const Image<const std::uint8_t>&, const Image<std::uint8_t>&,
                   const Offset&);
template void crop(const Image<const float>&, const Image<float>&, const Offset&);
template void flip(const Image<std::uint8_t>&);
template void flip(const Image<float>&);

}  // namespace lockstep::data
