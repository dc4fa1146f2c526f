#pragma once

#include <cstdint>

namespace lockstep::data {

// A view of the values of an image, channel by channel: (C, H, W).
template <typename T>
struct Image {
  T* data;
  std::int64_t channels, height, width;

  T* row(std::int64_t channel, std::int64_t y) const {
    return data + (channel * height + y) * width;
  }
};

struct ImageSize {
  std::int64_t height = 0, width = 0;
};

struct Offset {
  std::int64_t down = 0, right = 0;
};

struct Box {
  std::int64_t top = 0, left = 0, height = 0, width = 0;
};

}  // namespace lockstep::data
