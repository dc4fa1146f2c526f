#pragma once

#include <chrono>
#include <memory>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

struct LocalOptions {
  std::chrono::milliseconds timeout{600'000};
};

// Makes ranks as threads of this process, one communicator for each device given (a
// device may be given more than once). Sums are taken in the order of the ranks, so
// results are the same in every run. A collective is carried out by the last rank to
// come; no rank waits before wait().
std::vector<std::unique_ptr<Communicator>> make_local(
    const std::vector<torch::Device>& devices, const LocalOptions& options = {});

}  // namespace lockstep::comm
