#pragma once

#include <span>
#include <string>
#include <vector>

#include "lockstep/config/server.h"
#include "lockstep/hardware/machine.h"
#include "lockstep/service/job.h"

namespace lockstep::service {

// A GPU that gets no job, and why.
struct GpuProblem {
  int gpu = 0;
  std::string reason;  // "95 C, more than queue.max_gpu_celsius=90; look at its fan"
};

// What jobs can run on.
struct Pool {
  hardware::Machine machine;
  std::vector<int> gpus;   // that jobs share, by index
  std::vector<int> cores;  // logical CPUs that jobs share
  std::vector<GpuProblem> problems;
  bool elsewhere = false;  // another engine decides what jobs run on, and when
};

// What a pool is made of.
struct PoolOptions {
  hardware::Machine machine;
  config::QueueConfig queue = {};
  std::span<const Lease> leases = {};  // of our jobs
  std::vector<int> cores = {};
  std::vector<int> supervisors =
      {};  // processes of our jobs, which have started others
};

// Returns what of a machine the queue may use. A GPU that is too hot, has lost memory,
// or can not be used is among the problems, and so is one on which a process computes
// that is none of ours: on a GPU that ours have, one that no supervisor has started, as
// far as processes can be seen.
Pool pool_of(PoolOptions options);

// Returns whether a process is there, and none of these nor of their children and
// children's children.
bool is_strange(int pid, std::span<const int> supervisors);

// The share of the pool that a job gets, or why it gets none now.
struct Allocation {
  std::vector<Lease> leases;
  std::string reason;  // "" if it gets something

  explicit operator bool() const noexcept { return reason.empty(); }
};

// Chooses GPUs that are near each other, and cores; `leases` are taken.
Allocation allocate(const Pool& pool, std::span<const Lease> leases,
                    const Resources& wanted);

// Returns why these can never be had here, "" if they can.
std::string never_fits(const Pool& pool, const Resources& wanted);

}  // namespace lockstep::service
