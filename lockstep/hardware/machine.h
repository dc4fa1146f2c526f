#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::hardware {

using Path = std::filesystem::path;

struct Gpu {
  int index = 0;  // as CUDA counts: after CUDA_VISIBLE_DEVICES
  std::string name;
  std::string uuid;
  std::string pci_id;  // as in /sys/bus/pci/devices: "0000:3b:00.0"; "" if not known
  std::int64_t memory_total_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;
};

// What this process may use of the machine, not what the machine is made of: a
// container with two cores of 64 has two.
struct Machine {
  std::string hostname;
  std::string os;      // "Debian GNU/Linux 12 (bookworm)"
  std::string kernel;  // "6.1.0-18-amd64"
  std::string cpu_model;
  int physical_cores = 1;  // limited by affinity and the cgroup's quota
  int logical_cores = 1;   // the same, hyper-threads counted
  int sockets = 1;
  std::int64_t memory_total_bytes = 0;      // of the cgroup, where it has a limit
  std::int64_t memory_available_bytes = 0;  // what can still be allocated
  std::vector<Gpu> gpus;
  std::string driver_version;          // of NVIDIA's driver, "" without one
  std::string cuda_driver_version;     // the newest CUDA it can run, "13.0"
  std::string gpu_note;                // why there is no GPU, "" when there is one
  std::optional<int> omp_num_threads;  // of the environment, if it is a number above 0
};

// Reads /proc and /sys below `root` (tests have such trees as fixtures) and, for GPUs,
// NVML if it is there. What can not be found is left at its default: this never fails.
Machine detect(const Path& root = "/");

}  // namespace lockstep::hardware
