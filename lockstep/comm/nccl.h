#pragma once

#include <memory>
#include <string>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/gloo.h"

namespace lockstep::comm {

// Returns the reason why NCCL can not move tensors of `device` here; "" if it can, as
// far as can be told without trying.
std::string nccl_obstacle(const torch::Device& device);

// Makes c10d's NCCL for CUDA tensors, one device a rank. Its first collective is run
// here, so that a failure shows now (Fault::comm). Collective.
std::unique_ptr<Communicator> make_nccl(const GroupOptions& options);

}  // namespace lockstep::comm
