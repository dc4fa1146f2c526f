#pragma once

#include <optional>
#include <string>
#include <vector>

#include "lockstep/hardware/machine.h"

namespace lockstep::hardware {

// A logical CPU. Hyper-threads of one core have the same `core`.
struct Cpu {
  int number = 0;  // as the kernel and taskset count
  int core = 0;    // numbered over the whole machine
  int socket = 0;
  int numa_node = 0;

  bool operator==(const Cpu&) const = default;
};

// The CPUs that this process may use, by number.
struct CpuTopology {
  std::vector<Cpu> cpus;
  std::optional<int> quota;  // whole cores that the cgroup grants, where it limits them

  int num_cores() const;  // physical ones among `cpus`; the quota is not applied
};

// Reads /sys and /proc below `root`. Never fails: CPUs that the kernel says nothing
// about are cores of their own on socket and node 0.
CpuTopology cpu_topology(const Path& root = "/");

// Returns the CPUs local to a PCI device ("0000:3b:00.0"); empty when the kernel does
// not know.
std::vector<int> cpus_near(const std::string& pci_id, const Path& root = "/");

// Formats {0, 1, 2, 8} as "0-2,8".
std::string cpu_list_text(const std::vector<int>& cpus);

}  // namespace lockstep::hardware
