#pragma once

#include <cstdint>

#include "lockstep/config/field.h"

namespace lockstep::config {

// Augmentations of training images, in this order; an evaluation has none. They depend
// on run.seed, the epoch and the sample, not on workers or ranks.
struct AugmentConfig {
  std::int64_t crop_padding = 0;
  double flip = 0;
  std::int64_t cutout = 0;
  double erase = 0;
  double mixup = 0;
  double cutmix = 0;
};

template <typename Visitor>
void describe(AugmentConfig& c, Visitor& v) {
  v.field("crop_padding", c.crop_padding,
          {.help = "Black pixels around an image, of which a random piece of its old "
                   "size is taken; 0: none.",
           .range = between(0, 1024)});
  v.field("flip", c.flip,
          {.help = "How often left and right are exchanged: 0.5 is every other time.",
           .range = between(0, 1)});
  v.field("cutout", c.cutout,
          {.help = "Side of a square in pixels that is hidden; 0: none.",
           .range = between(0, 16384)});
  v.field("erase", c.erase,
          {.help = "How often a random box of 2 to 33 % of the image is hidden.",
           .range = between(0, 1)});
  v.field("mixup", c.mixup,
          {.help = "Images and classes are averaged in pairs; alpha of the Beta "
                   "distribution of the shares, 0.2 is usual; 0: not at all.",
           .range = between(0, 100)});
  v.field("cutmix", c.cutmix,
          {.help = "Pairs exchange a box; alpha as in mixup, 1 is usual. With both, a "
                   "coin decides for each pair.",
           .range = between(0, 100)});
}

}  // namespace lockstep::config
