#pragma once

#include <memory>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// Moves tensors of `device` over a communicator of CPU tensors: copied to the host,
// exchanged there, copied back. For GPUs where NCCL is not usable: correct, but slow.
std::unique_ptr<Communicator> make_staged(std::unique_ptr<Communicator> cpu,
                                          const torch::Device& device);

}  // namespace lockstep::comm
