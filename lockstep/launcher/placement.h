#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/hardware/cpu_topology.h"

namespace lockstep::launcher {

// none: a rank may run anywhere. numa: on the CPUs of one NUMA node (its GPU's, if it
// has one). cores: on its own share of the cores, which no other rank has.
enum class Binding { none, numa, cores };
std::string_view name_of(Binding binding) noexcept;
std::optional<Binding> binding_of(std::string_view name) noexcept;

// The CPUs of a rank and its number of threads.
struct RankPlacement {
  std::vector<int> cpus;  // empty: not bound
  int threads = 1;        // OMP_NUM_THREADS for it
  std::string because;    // "2 physical cores of NUMA node 0"; why `threads`
};

struct PlacementRequest {
  int ranks = 1;
  Binding binding = Binding::none;
  // The CPUs near each rank's GPU, empty where it is not known; no entries at all
  // without GPUs.
  std::vector<std::vector<int>> near_gpu = {};
  // The OMP_NUM_THREADS of the environment, which is always honoured.
  std::optional<int> omp_num_threads = {};
};

// Returns one RankPlacement a rank. Pure: decides from its arguments alone.
//
// A rank's share is its NUMA node's cores divided among the ranks of that node; without
// binding, all cores divided among all ranks. Threads are the physical cores of the
// share, at least one, together not more than the cgroup's quota. With more ranks than
// cores, `cores` lets ranks share one, and `because` says so.
std::vector<RankPlacement> place_ranks(const hardware::CpuTopology& topology,
                                       const PlacementRequest& request);

}  // namespace lockstep::launcher
