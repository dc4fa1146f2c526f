#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <torch/torch.h>

#include "lockstep/comm/communicator.h"

namespace lockstep::train {

// Memory of a rank's device: a GPU's as LibTorch's allocator knows it, or of the host
// the process's.
struct DeviceMemory {
  std::int64_t allocated_bytes = 0;  // by tensors
  std::int64_t reserved_bytes = 0;   // held by the process, for tensors to come, too
  std::int64_t total_bytes = 0;      // of the device
  std::int64_t peak_bytes = 0;       // the most that was allocated so far
};
DeviceMemory memory_of(const torch::Device& device);

// What a rank did in the steps since the last report; sums over them.
struct RankWindow {
  double data_wait_seconds = 0;
  double compute_seconds = 0;  // from the start of a step to its last gradient
  double exchange_wait_seconds = 0;
  double forward_seconds = 0;  // 0 on a GPU, where nobody waits to know
  double backward_seconds = 0;
  std::int64_t samples = 0;
  DeviceMemory memory;
};

// Those of all ranks, by rank. Collective.
std::vector<RankWindow> gather(const RankWindow& own, comm::Communicator& cpu);

// The rank that the others waited for.
struct Straggler {
  int rank = 0;
  double late_seconds = 0;  // in all of the window, against the mean of the others
  std::string cause;        // "data wait" or "compute"
};

// The one whose gradients were the last to be ready. Nobody, if there is one rank.
std::optional<Straggler> find_straggler(const std::vector<RankWindow>& ranks);

}  // namespace lockstep::train
