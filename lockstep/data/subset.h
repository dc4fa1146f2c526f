#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Returns some samples of a data set, in the order of `indices`.
std::unique_ptr<Dataset> subset(std::shared_ptr<const Dataset> dataset,
                                std::vector<std::int64_t> indices);

// Returns `count` samples at even distances, so that a data set in the order of its
// classes keeps their shares; all if there are no more, or for 0.
std::unique_ptr<Dataset> thinned(std::unique_ptr<Dataset> dataset, std::int64_t count);

// Holds a share of the samples back for evaluation, chosen at random but always the
// same ones, whatever the run's seed is. Throws Fault::config, with the arithmetic, if
// one of the two parts would be empty.
struct HeldOut {
  std::unique_ptr<Dataset> train, eval;
};
HeldOut hold_out(std::unique_ptr<Dataset> dataset, double share);

}  // namespace lockstep::data
