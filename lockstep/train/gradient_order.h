#pragma once

#include <string>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/train/shared.h"

namespace lockstep::train {

// Returns the names of the parameters of the recipe's model in the order in which their
// gradients become ready, for parallel::make_strategy(): from a pass over a copy of the
// model that has no memory. Empty if that is not known: the program brings the model,
// or an operation of it can not run without memory.
std::vector<std::string> gradient_order(const config::Config& config,
                                        const Shared& shared);

}  // namespace lockstep::train
