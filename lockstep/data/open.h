#pragma once

#include <memory>

#include "lockstep/config/data.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

enum class Split { train, eval };

// The data set that a recipe names, limited to data.train_samples or data.eval_samples.
// Throws Fault::config for a name that does not exist and Fault::io, with the package
// that provides the files, where they are missing.
std::unique_ptr<Dataset> open(const config::DataConfig& config, Split split);

}  // namespace lockstep::data
