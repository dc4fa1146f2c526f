#pragma once

#include <memory>

#include "lockstep/config/task.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

// The same samples, looked at for what section `task` can not learn from when they are
// read, on the host: a step never has to. task.ignore_index is that of the data set
// then. Where there is nothing to look at it is `dataset` itself.
//
// Fault::config, with the sample: a negative class that is not to be ignored. Bad
// samples (Fault::io): numbers that are not finite, labels other than 0 to 1, -1 and
// NaN, weights that are negative or not finite. What is masked out may be anything.
std::shared_ptr<const Dataset> checked(std::shared_ptr<const Dataset> dataset,
                                       const config::TaskConfig& task);

}  // namespace lockstep::data
