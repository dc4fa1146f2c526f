#pragma once

#include <cstdint>

#include "lockstep/data/random.h"
#include "lockstep/data/transforms/image.h"

namespace lockstep::data {

// The options that mix samples in pairs. The strengths are the alpha of a Beta(alpha,
// alpha); 0: not at all. With both, a coin decides for each pair.
struct Mixing {
  double mixup = 0;   // the values are averaged
  double cutmix = 0;  // a box is exchanged

  bool any() const noexcept { return mixup > 0 || cutmix > 0; }
};

// The mix of the two samples of a pair. Each keeps the larger part of itself, so it
// mostly shows its own class.
struct Blend {
  float own = 1;  // the share of itself that a sample keeps
  bool cut = false;
  Box box = {};  // the exchanged part, if cut
};

Blend draw_blend(Random& random, const Mixing& mixing, const ImageSize& image);

// Blends both at once: a = own * a + (1 - own) * b, and b likewise. Bytes are rounded.
template <typename T>
void mix(const Image<T>& a, const Image<T>& b, const Blend& blend);

}  // namespace lockstep::data
