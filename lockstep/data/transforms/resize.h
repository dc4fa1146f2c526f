#pragma once

#include <cstdint>
#include <vector>

#include "lockstep/data/transforms/image.h"

namespace lockstep::data {

// Rows of pixels as a decoder writes them, `step` values a pixel, or a plane (step 1).
template <typename T>
struct Pixels {
  const T* data;
  std::int64_t height, width;
  std::int64_t step;        // values of a pixel
  std::int64_t row_stride;  // values from a row to the next
};

// Resizes bilinearly, with a filter as wide as the reduction so that small images do
// not flicker (PyTorch calls it antialias).
//
// Threads: one at a time; it keeps its weights and its memory for the next image.
class Resizer {
 public:
  // Resizes all of `in`, whose channels are the values of a pixel, four at most.
  template <typename T>
  void resize(const Pixels<T>& in, const Image<T>& out);

  // Resizes a plane at a time.
  template <typename T>
  void resize(const Image<const T>& in, const Image<T>& out);

 private:
  // For each output position, the begin and the weights of its inputs.
  struct Axis {
    std::int64_t in = 0, out = 0;
    std::int64_t taps = 0;  // weights of a position, zeros at the end
    std::vector<std::int64_t> begin;
    std::vector<float> weights;

    void plan(std::int64_t from, std::int64_t to);
  };

  template <typename T>
  void rows(const Pixels<T>& in, std::int64_t y);
  template <typename T>
  void columns(const Image<T>& out, std::int64_t step, std::int64_t y) const;

  Axis x_, y_;
  std::vector<float> row_;  // an output row at the width of the input
};

}  // namespace lockstep::data
