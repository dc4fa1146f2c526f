#pragma once

#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm::detail {

// Carries out one collective of ranks that are threads: `calls` by rank, all of the
// same signature. Reductions are computed on `at`, in the order of the ranks. The
// streams have been put in order.
void execute(const std::vector<Call>& calls, const torch::Device& at);

}  // namespace lockstep::comm::detail
