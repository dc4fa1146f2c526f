#pragma once

#include <string>
#include <utility>
#include <vector>

#include <torch/torch.h>

namespace lockstep::optim {

// The state in a checkpoint, by name; a single number has no dimension.
using NamedTensors = std::vector<std::pair<std::string, torch::Tensor>>;

// Copies `from` into the tensors of `own`, which must have the same names and shapes:
// else Fault::config, with `whose` state it is.
void copy_state(const NamedTensors& own, const NamedTensors& from, const char* whose);

}  // namespace lockstep::optim
