#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// What is done to each image between the data set and the batch, in this order.
struct Transforms {
  std::int64_t resize = 0;        // to so many pixels square; 0: as it is
  std::int64_t crop_padding = 0;  // black pixels around it, then a random piece
  double flip = 0;                // how often left becomes right
  std::int64_t cutout = 0;        // side of a square that is hidden; 0: none
  double erase = 0;               // how often a random box is hidden
  // Of the values scaled to [0, 1], one for all channels or one for each; empty: those
  // of the data set.
  std::vector<double> mean = {};
  std::vector<double> deviation = {};
};

// The data set seen through the transforms; what is random depends on the visit only.
// What is hidden becomes 0 to the model. Throws Fault::config, naming the knob, for
// samples that are no images.
std::unique_ptr<Dataset> transformed(std::unique_ptr<Dataset> dataset,
                                     const Transforms& transforms);

}  // namespace lockstep::data
