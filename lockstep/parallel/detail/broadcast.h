#pragma once

#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"

namespace lockstep::parallel::detail {

// Gives every rank rank 0's values of these tensors, in one collective for each dtype
// and device: models have many small buffers. `cpu` moves those of the host.
// Collective.
void broadcast_all(const std::vector<torch::Tensor>& tensors, comm::Communicator& data,
                   comm::Communicator& cpu);

}  // namespace lockstep::parallel::detail
