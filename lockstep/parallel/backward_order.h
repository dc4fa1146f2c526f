#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/parallel/layout.h"

namespace lockstep::parallel {

// Returns the names of the trainable parameters in the order in which their gradients
// become ready in `pass`, which computes a loss of the module and calls its backward();
// those without a gradient come last. The module may be one without memory (torch's
// meta device): buckets can be cut along the order before anything is allocated.
std::vector<std::string> backward_order(const torch::nn::Module& module,
                                        const std::function<void()>& pass);

// Returns the order of the names as indices of `parameters`; parameters that are not
// named follow, last to first.
std::vector<std::size_t> order_by_name(const std::vector<Parameter>& parameters,
                                       const std::vector<std::string>& names);

}  // namespace lockstep::parallel
