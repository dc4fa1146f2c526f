#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/hardware/gpu.h"
#include "lockstep/hardware/measured.h"

namespace lockstep::hardware {

using Path = std::filesystem::path;

struct CpuCache {
  int level = 0;
  std::string type;  // "data", "instruction", "unified"
  std::int64_t size_bytes = 0;
  int count = 0;  // the number of such caches in the machine
};

struct NumaNode {
  int node = 0;
  std::string cpus;  // "0-15,32-47"
  std::int64_t memory_total_bytes = 0;
  std::int64_t memory_free_bytes = 0;
};

// The file system and device that hold a directory.
struct Disk {
  std::string path;
  std::string mount;
  std::string filesystem;  // "ext4", "nfs4", "overlay"
  std::int64_t total_bytes = 0;
  std::int64_t free_bytes = 0;  // for us
  bool writable = false;
  std::optional<bool> rotational;
};

struct NetworkInterface {
  std::string name;
  std::string kind;   // "loopback", "ethernet", "infiniband", "wireless", "virtual"
  std::string state;  // "up", "down", "unknown"
  std::optional<int> speed_mbits;
  std::optional<int> mtu;
  std::optional<int> numa_node;
  std::vector<std::string> addresses;
};

// The resources of the machine that this process may use, not all that it has: a
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
  std::int64_t memory_available_bytes = 0;  // free for allocation
  std::vector<Gpu> gpus;
  std::string driver_version;       // of NVIDIA's driver, "" without one
  std::string cuda_driver_version;  // the newest CUDA it can run, "13.0"
  std::string gpu_note;             // why there is no GPU, "" when there is one
  std::vector<UnusableGpu> unusable_gpus;
  int hidden_gpus = 0;                 // that the driver shows and CUDA does not
  std::optional<int> omp_num_threads;  // of the environment, if it is a number above 0

  // Only inspect() fills the members below.
  std::vector<GpuPair> gpu_pairs;
  std::vector<std::string>
      cpu_extensions;  // those that matter here: "avx2", "amx_bf16"
  std::vector<CpuCache> cpu_caches;
  std::optional<double> max_cpu_mhz;
  std::vector<NumaNode> numa_nodes;
  std::optional<double> cgroup_cores;  // the quota, if there is one
  std::optional<std::int64_t> cgroup_memory_bytes;
  std::int64_t swap_total_bytes = 0;
  std::int64_t swap_free_bytes = 0;
  std::optional<std::int64_t> shared_memory_bytes;  // room of /dev/shm
  std::optional<Disk> disk;                         // of the run directory
  std::vector<NetworkInterface> network;
  std::vector<std::string> rdma_devices;  // InfiniBand and RoCE: "mlx5_0"

  std::optional<Measured> measured;  // as kept from the last `lockstep hardware bench`
};

// Reads /proc and /sys below `root` (tests have such trees as fixtures) and, for GPUs,
// NVML if it is there. A value that can not be found keeps its default: this never
// fails.
Machine detect(const Path& root = "/");

// The memory alone, cheap enough to be asked for every second.
struct HostMemory {
  std::int64_t total_bytes = 0;
  std::int64_t available_bytes = 0;
};
HostMemory host_memory(const Path& root = "/");

// Returns everything detect() does and more, for a report: also libcuda, processes,
// links, disks, networks. Makes no CUDA context. `run_directory` need not exist yet.
Machine inspect(const Path& run_directory, const Path& root = "/");

}  // namespace lockstep::hardware
