#pragma once

#include "lockstep/data/transforms/image.h"

// Transforms are pure functions: all they use is passed in, randomness included. T is
// std::uint8_t or float.
namespace lockstep::data {

// Sets out(y, x) = in(y + down, x + right), and 0 outside of `in`: a piece of the image
// on black. The number of channels is the same.
template <typename T>
void crop(const Image<const T>& in, const Image<T>& out, const Offset& offset);

// Flips left and right.
template <typename T>
void flip(const Image<T>& image);

}  // namespace lockstep::data
