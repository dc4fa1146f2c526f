#pragma once

#include <optional>
#include <span>

#include "lockstep/data/random.h"
#include "lockstep/data/transforms/image.h"

namespace lockstep::data {

// Fills the box with one value a channel.
template <typename T>
void erase(const Image<T>& image, const Box& box, std::span<const float> values);

// Draws a box for cutout: a square of `side` whose center is anywhere in the image,
// clipped to it.
Box cutout_box(Random& random, const ImageSize& image, std::int64_t side);

// Draws a box for random erasing: 2 to 33 % of the image, of an aspect ratio from 0.3
// to 3.3, inside of it. None if ten tries gave no box that fits.
std::optional<Box> erasing_box(Random& random, const ImageSize& image);

}  // namespace lockstep::data
