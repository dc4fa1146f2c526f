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
          {.help = "Random crop: black pixels padded around an image before a random "
                   "crop to its old size; 0: none.",
           .range = between(0, 1024)});
  v.field("flip", c.flip,
          {.help = "Random horizontal flip: its probability.", .range = between(0, 1)});
  v.field("cutout", c.cutout,
          {.help = "Cutout: side in pixels of a square that is masked; 0: none.",
           .range = between(0, 16384)});
  v.field("erase", c.erase,
          {.help = "Random erasing: probability that a random box of 2 to 33 % of the "
                   "image is masked.",
           .range = between(0, 1)});
  v.field("mixup", c.mixup,
          {.help = "Mixup: images and classes are averaged in pairs, with weights from "
                   "Beta(alpha, alpha); 0.2 is usual; 0: off.",
           .range = between(0, 100)});
  v.field("cutmix", c.cutmix,
          {.help = "CutMix: pairs exchange a box; alpha as in mixup, 1 is usual; 0: "
                   "off. With both, each pair takes one at random.",
           .range = between(0, 100)});
}

}  // namespace lockstep::config
