#pragma once

#include <cstdint>
#include <string>

#include "lockstep/config/config.h"
#include "lockstep/data/dataset.h"
#include "lockstep/data/open.h"

namespace lockstep::describe::detail {

// The samples that a model is described for.
struct DescribedSamples {
  data::SampleSpec spec;
  std::int64_t train_samples = 0;
  std::string assumed;  // why they are not those of files; "": they are
  // The files, open: a run holds them, too, so a trial's memory counts what they take.
  data::Splits files = {};
};

// Returns those of the recipe's files; where they are not here those that it promises,
// if it says enough: a plan may be made elsewhere. Throws as opening the files does.
DescribedSamples samples_of(const config::Config& config);

}  // namespace lockstep::describe::detail
