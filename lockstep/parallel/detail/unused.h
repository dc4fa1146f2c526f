#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/layout.h"

namespace lockstep::parallel::detail {

// Returns the error's text for parameters that took no part in the backward pass:
// which, and on which ranks. Collective; the same on every rank.
std::string describe_unused(const std::vector<Parameter>& parameters,
                            const std::vector<char>& used, comm::Communicator& cpu);

}  // namespace lockstep::parallel::detail
