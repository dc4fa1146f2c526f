#pragma once

#include <cstdint>
#include <optional>

#include "lockstep/config/data.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

// The samples that a recipe promises.
struct AssumedSamples {
  SampleSpec spec;
  std::int64_t train_samples = 0;  // 0: not known
};

// Returns what can be known of a recipe's samples without their files, which is enough
// to plan with: shapes that are the data set's own or follow from knobs. Images of
// nobody knows how many classes have 1000, as ImageNet's. Returns nothing for shapes
// that only the files tell.
std::optional<AssumedSamples> assumed_samples(const config::DataConfig& config);

}  // namespace lockstep::data
