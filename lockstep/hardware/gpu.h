#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace lockstep::hardware {

// A field without a value is one that the driver or the device does not tell ("n/a").

// The state of a GPU at one moment.
struct GpuStatus {
  std::optional<std::int64_t> memory_used_bytes;
  std::optional<std::int64_t> memory_free_bytes;
  std::optional<std::int64_t> memory_reserved_bytes;  // by the driver and the firmware
  std::optional<int> utilization_percent;             // of the time a kernel ran
  std::optional<int> memory_utilization_percent;      // of the time memory was moved
  std::optional<int> temperature_celsius;
  std::optional<double> power_watts;
  std::optional<double> energy_joules;  // since the driver was loaded
  std::optional<int> sm_clock_mhz;
  std::optional<int> memory_clock_mhz;
  std::optional<std::vector<std::string>> throttle_reasons;  // "power_cap", ...
  std::optional<std::int64_t> ecc_corrected;  // since the driver was loaded
  std::optional<std::int64_t> ecc_uncorrected;
  std::optional<std::int64_t> pcie_replays;
  std::optional<std::int64_t> nvlink_sent_bytes;  // over all links, a counter
  std::optional<std::int64_t> nvlink_received_bytes;
};

// Rows of memory that were replaced because they failed.
struct RemappedRows {
  int corrected = 0;
  int uncorrected = 0;
  bool pending = false;  // takes effect after a reset
  bool failed = false;   // there was no spare row: replace the GPU
};

// An error of the GPU itself, not of a program on it, in the kernel's log.
struct XidError {
  int xid = 0;          // NVIDIA's number for it
  std::string message;  // "79, pid=1234, GPU has fallen off the bus."
};

// An active NVLink. `remote_pci_id` is that of a GPU, or of a switch.
struct NvLink {
  int link = 0;
  std::optional<int> version;
  std::string remote_pci_id;
  bool to_switch = false;
};

struct GpuProcess {
  int pid = 0;
  std::string name;  // "" in another container
  std::string user;
  std::optional<std::int64_t> memory_bytes;
};

struct Gpu {
  int index = 0;  // as CUDA counts: after CUDA_VISIBLE_DEVICES, in CUDA's order
  std::string name;
  std::string uuid;
  std::string pci_id;  // as in /sys/bus/pci/devices: "0000:3b:00.0"; "" if not known
  std::int64_t memory_total_bytes = 0;
  int compute_major = 0;
  int compute_minor = 0;

  int nvml_index = 0;      // as nvidia-smi counts; of the whole GPU for an instance
  std::string mig_parent;  // UUID of the GPU that this is an instance of, else ""

  // Only inspect() fills the members below.
  std::optional<int> multiprocessors;
  std::optional<int> max_threads_per_block;
  std::optional<int> max_threads_per_multiprocessor;
  std::optional<std::int64_t>
      shared_memory_per_block_bytes;  // the most that a kernel may ask for
  std::optional<std::int64_t> shared_memory_per_multiprocessor_bytes;
  std::optional<std::int64_t> l2_bytes;
  std::optional<int> memory_bus_bits;
  std::optional<int> max_sm_clock_mhz;
  std::optional<int> max_memory_clock_mhz;
  std::optional<double> power_limit_watts;
  std::optional<int> slowdown_celsius;  // from here on it protects itself
  std::optional<int> pcie_generation;   // now: an idle link may be slower
  std::optional<int> pcie_width;
  std::optional<int> max_pcie_generation;
  std::optional<int> max_pcie_width;
  std::optional<bool> persistence;
  std::optional<std::string> compute_mode;  // "shared", "exclusive", "prohibited"
  std::optional<bool> ecc_enabled;
  std::optional<RemappedRows> remapped_rows;
  std::optional<int> numa_node;
  std::string cpus_near;  // "0-15,32-47", "" if not known
  std::vector<NvLink> nvlinks;
  std::vector<GpuProcess> processes;
  std::vector<XidError> xid_errors;  // since the log was last cleared, or the boot
  GpuStatus status;
};

// A GPU that the driver counts and that can not be used.
struct UnusableGpu {
  int nvml_index = 0;
  std::string reason;  // "GPU is lost", "Insufficient Permissions"
};

// The connection between two GPUs, by their `index`.
struct GpuPair {
  int first = 0;
  int second = 0;
  int nvlinks = 0;  // 0: over PCIe
  // The PCIe path between them, nearest first: "board", "switch", "switches", "bridge"
  // (one host bridge), "node" (within a NUMA node), "system" (between sockets); of a
  // machine that is only planned for also "network" (between hosts).
  std::optional<std::string> path;
  std::optional<bool> peer_access;
};

}  // namespace lockstep::hardware
