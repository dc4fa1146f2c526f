#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// The transforms of each image between the data set and the batch, in this order.
struct Transforms {
  std::int64_t resize = 0;        // to so many pixels square; 0: as it is
  std::int64_t crop_padding = 0;  // black pixels around it, then a random piece
  double flip = 0;                // the probability of a horizontal flip
  std::int64_t cutout = 0;        // side of a square that is hidden; 0: none
  double erase = 0;               // the probability that a random box is hidden
  // The mean and deviation of values scaled to [0, 1], one for all channels or one for
  // each; empty: those of the data set.
  std::vector<double> mean = {};
  std::vector<double> deviation = {};
};

// Returns the data set seen through the transforms; randomness depends on the visit
// only. The model sees hidden pixels as 0. Throws Fault::config, naming the knob, for
// samples that are no images.
std::unique_ptr<Dataset> transformed(std::unique_ptr<Dataset> dataset,
                                     const Transforms& transforms);

}  // namespace lockstep::data
