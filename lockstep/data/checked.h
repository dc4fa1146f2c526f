#pragma once

#include <memory>

#include "lockstep/config/task.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

// Checks samples when they are read, on the host, for values that section `task` can
// not learn from: a step never has to. task.ignore_index is that of the data set then.
// Returns `dataset` itself where there is nothing to check.
//
// Throws Fault::config, with the sample, for a negative class that is not to be
// ignored. Bad samples (Fault::io): numbers that are not finite, labels other than 0 to
// 1, -1 and NaN, weights that are negative or not finite. Masked values may be
// anything.
std::shared_ptr<const Dataset> checked(std::shared_ptr<const Dataset> dataset,
                                       const config::TaskConfig& task);

}  // namespace lockstep::data
