#pragma once

#include <memory>
#include <vector>

#include <torch/torch.h>

#include "lockstep/data/dataset.h"
#include "lockstep/data/named.h"

namespace lockstep::data {

// Samples that are in memory already: row i of each tensor is sample i's. "input" and
// "target" are such, others are fields. Of whole numbers from 0 on as targets the
// largest plus one is the number of classes. Throws Fault::config if rows are missing.
//
// The tensors are the host's, and not changed any more.
std::unique_ptr<Dataset> from_tensors(const Named& tensors);

}  // namespace lockstep::data
