// The details that NVML reports about one GPU, and about two.
#include <algorithm>
#include <array>
#include <limits>
#include <map>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/hardware/detail/limits.h"
#include "lockstep/hardware/detail/nvml.h"

namespace lockstep::hardware::detail {
namespace {

constexpr int kSmClock = 1;
constexpr int kMemoryClock = 2;

// Returns the value of a function whose last argument is an output, if it works.
template <typename Value, typename Function, typename... Arguments>
std::optional<Value> ask(const Function& function, Arguments... arguments) {
  Value value{};
  if (function(arguments..., &value) != kNvmlSuccess) return std::nullopt;
  return value;
}

template <typename To, typename From>
std::optional<To> as(const std::optional<From>& value) {
  if (!value) return std::nullopt;
  return static_cast<To>(*value);
}

std::optional<double> thousandths(const std::optional<double>& value) {
  return value ? std::optional(*value / 1000) : std::nullopt;
}

std::vector<std::string> reasons_of(unsigned long long bits) {
  constexpr std::array<std::string_view, 9> kNames = {"idle",
                                                      "clocks_setting",
                                                      "power_cap",
                                                      "hardware_slowdown",
                                                      "sync_boost",
                                                      "temperature",
                                                      "hardware_temperature",
                                                      "power_brake",
                                                      "display"};
  std::vector<std::string> reasons;
  for (std::size_t bit = 0; bit < kNames.size(); ++bit) {
    if ((bits >> bit & 1) != 0) reasons.emplace_back(kNames[bit]);
  }
  return reasons;
}

void read_memory(const Nvml& nvml, NvmlDevice device, GpuStatus& status) {
  // The version is the struct's size and its number in the highest byte.
  NvmlMemoryV2 second{.version = sizeof(NvmlMemoryV2) | 2U << 24,
                      .total = 0,
                      .reserved = 0,
                      .free = 0,
                      .used = 0};
  if (nvml.memory_v2(device, &second) == kNvmlSuccess) {
    status.memory_used_bytes = static_cast<std::int64_t>(second.used);
    status.memory_free_bytes = static_cast<std::int64_t>(second.free);
    status.memory_reserved_bytes = static_cast<std::int64_t>(second.reserved);
  } else if (const auto first = ask<NvmlMemory>(nvml.memory, device)) {
    status.memory_used_bytes = static_cast<std::int64_t>(first->used);
    status.memory_free_bytes = static_cast<std::int64_t>(first->free);
  }
}

void read_nvlink_counters(const Nvml& nvml, NvmlDevice device, GpuStatus& status) {
  constexpr unsigned kSent = 138, kReceived = 139;  // KiB since the driver was loaded
  constexpr unsigned kAllLinks = std::numeric_limits<unsigned>::max();
  std::array<NvmlFieldValue, 2> values{};
  values[0].field = kSent;
  values[1].field = kReceived;
  for (auto& value : values) value.scope = kAllLinks;
  if (nvml.field_values(device, values.size(), values.data()) != kNvmlSuccess) return;
  const auto bytes = [](const NvmlFieldValue& value) -> std::optional<std::int64_t> {
    if (value.result != kNvmlSuccess) return std::nullopt;
    return static_cast<std::int64_t>(value.value) * 1024;
  };
  status.nvlink_sent_bytes = bytes(values[0]);
  status.nvlink_received_bytes = bytes(values[1]);
}

std::vector<NvLink> read_nvlinks(const Nvml& nvml, NvmlDevice device) {
  constexpr unsigned kMostLinks = 64;  // 18 today; a number that does not exist fails
  constexpr unsigned kSwitch = 2;
  std::vector<NvLink> links;
  for (unsigned number = 0; number < kMostLinks; ++number) {
    const auto active = ask<unsigned>(nvml.nvlink_state, device, number);
    if (!active) break;
    if (*active == 0) continue;
    NvLink link{.link = static_cast<int>(number), .version = {}, .remote_pci_id = ""};
    link.version = as<int>(ask<unsigned>(nvml.nvlink_version, device, number));
    if (const auto pci = ask<NvmlPci>(nvml.nvlink_remote_pci, device, number)) {
      link.remote_pci_id = kernel_pci_id(*pci);
    }
    link.to_switch = ask<unsigned>(nvml.nvlink_remote_type, device, number) == kSwitch;
    links.push_back(std::move(link));
  }
  return links;
}

using ProcessFunction = NvmlFunction<NvmlDevice, unsigned*, NvmlProcess*>;

std::vector<NvmlProcess> process_list(const ProcessFunction& function,
                                      NvmlDevice device) {
  std::vector<NvmlProcess> processes(64);
  for (int attempt = 0; attempt < 3; ++attempt) {  // more may start meanwhile
    auto count = static_cast<unsigned>(processes.size());
    const int code = function(device, &count, processes.data());
    if (code == kNvmlSuccess) {
      processes.resize(std::min<std::size_t>(count, processes.size()));
      return processes;
    }
    if (code != kNvmlInsufficientSize) break;
    processes.resize(static_cast<std::size_t>(count) + 16);
  }
  return {};
}

// Looks up "alice:x:1000:..." in /etc/passwd; returns the number for an unknown user.
std::string user_name(const Path& root, const std::string& uid) {
  for (const auto& line : text::split(read_or_empty(root / "etc/passwd"), '\n')) {
    const auto fields = text::split(line, ':');
    if (fields.size() > 2 && fields[2] == uid) return fields[0];
  }
  return uid;
}

GpuProcess read_process(const Path& root, const NvmlProcess& from) {
  constexpr auto kUnknown = std::numeric_limits<unsigned long long>::max();
  const auto about = root / "proc" / str(from.pid);
  GpuProcess process{
      .pid = static_cast<int>(from.pid), .name = "", .user = "", .memory_bytes = {}};
  process.name = std::string(text::trim(read_or_empty(about / "comm")));
  const auto ids = line_value(read_or_empty(about / "status"), "Uid");
  const auto uid = ids.substr(0, ids.find_first_of(" \t"));
  if (!uid.empty()) process.user = user_name(root, uid);
  if (from.used_bytes != kUnknown) {
    process.memory_bytes = static_cast<std::int64_t>(from.used_bytes);
  }
  return process;
}

std::vector<GpuProcess> read_processes(const Nvml& nvml, NvmlDevice device,
                                       const Path& root) {
  std::map<unsigned, GpuProcess> by_pid;  // one may compute and draw
  for (const auto* function : {&nvml.compute_processes, &nvml.graphics_processes}) {
    for (const auto& process : process_list(*function, device)) {
      by_pid.try_emplace(process.pid, read_process(root, process));
    }
  }
  std::vector<GpuProcess> processes;
  for (auto& [pid, process] : by_pid) processes.push_back(std::move(process));
  return processes;
}

std::optional<std::string> mode_name(const std::optional<int>& mode) {
  if (mode == 0) return "shared";
  if (mode == 2) return "prohibited";
  if (mode == 1 || mode == 3) return "exclusive";
  return std::nullopt;
}

std::optional<RemappedRows> read_rows(const Nvml& nvml, NvmlDevice device) {
  unsigned corrected = 0, uncorrected = 0, pending = 0, failed = 0;
  if (nvml.remapped_rows(device, &corrected, &uncorrected, &pending, &failed) !=
      kNvmlSuccess) {
    return std::nullopt;
  }
  return RemappedRows{.corrected = static_cast<int>(corrected),
                      .uncorrected = static_cast<int>(uncorrected),
                      .pending = pending != 0,
                      .failed = failed != 0};
}

void read_place(const Path& root, Gpu& gpu) {
  if (gpu.pci_id.empty()) return;
  const auto about = root / "sys/bus/pci/devices" / gpu.pci_id;
  const auto node = text::to_integer(text::trim(read_or_empty(about / "numa_node")));
  if (node && *node >= 0) gpu.numa_node = static_cast<int>(*node);  // -1: not known
  gpu.cpus_near = cpu_list_text(cpus_near(gpu.pci_id, root));
}

// Returns the number of links that lead straight to `other`, or those that both have to
// switches.
int links_between(const Gpu& gpu, const Gpu& other) {
  const auto direct = std::count_if(
      gpu.nvlinks.begin(), gpu.nvlinks.end(),
      [&](const NvLink& link) { return link.remote_pci_id == other.pci_id; });
  const auto to_switches = [](const Gpu& one) {
    return std::count_if(one.nvlinks.begin(), one.nvlinks.end(),
                         [](const NvLink& link) { return link.to_switch; });
  };
  return static_cast<int>(direct > 0 ? direct
                                     : std::min(to_switches(gpu), to_switches(other)));
}

std::optional<std::string> path_name(const std::optional<int>& level) {
  if (!level) return std::nullopt;
  constexpr std::array<const char*, 6> kNames = {"board",  "switch", "switches",
                                                 "bridge", "node",   "system"};
  return kNames[static_cast<std::size_t>(std::clamp(*level / 10, 0, 5))];
}

}  // namespace

GpuStatus read_status(const Nvml& nvml, NvmlDevice device, Counters counters) {
  GpuStatus status;
  read_memory(nvml, device, status);
  if (const auto busy = ask<NvmlUtilization>(nvml.utilization, device)) {
    status.utilization_percent = static_cast<int>(busy->gpu);
    status.memory_utilization_percent = static_cast<int>(busy->memory);
  }
  status.temperature_celsius = as<int>(ask<unsigned>(nvml.temperature, device, 0));
  status.power_watts = thousandths(as<double>(ask<unsigned>(nvml.power, device)));
  status.sm_clock_mhz = as<int>(ask<unsigned>(nvml.clock, device, kSmClock));
  status.memory_clock_mhz = as<int>(ask<unsigned>(nvml.clock, device, kMemoryClock));
  if (const auto bits = ask<unsigned long long>(nvml.throttle_reasons, device)) {
    status.throttle_reasons = reasons_of(*bits);
  }
  // The counts cover all memories since the driver was loaded.
  status.ecc_corrected =
      as<std::int64_t>(ask<unsigned long long>(nvml.ecc_errors, device, 0, 0));
  status.ecc_uncorrected =
      as<std::int64_t>(ask<unsigned long long>(nvml.ecc_errors, device, 1, 0));
  read_nvlink_counters(nvml, device, status);
  if (counters == Counters::quick) return status;
  status.energy_joules =
      thousandths(as<double>(ask<unsigned long long>(nvml.energy, device)));
  status.pcie_replays = as<std::int64_t>(ask<unsigned>(nvml.pcie_replays, device));
  return status;
}

void add_details(const Nvml& nvml, const Path& root, FoundGpu& found) {
  constexpr int kSlowdown = 1;
  auto& gpu = found.gpu;
  const auto device = found.device;
  const auto number = [&](const NvmlNumber& function) {
    return as<int>(ask<unsigned>(function, device));
  };
  if (!gpu.memory_bus_bits) gpu.memory_bus_bits = number(nvml.bus_width);
  gpu.max_sm_clock_mhz = as<int>(ask<unsigned>(nvml.max_clock, device, kSmClock));
  gpu.max_memory_clock_mhz =
      as<int>(ask<unsigned>(nvml.max_clock, device, kMemoryClock));
  gpu.power_limit_watts =
      thousandths(as<double>(ask<unsigned>(nvml.power_limit, device)));
  gpu.slowdown_celsius =
      as<int>(ask<unsigned>(nvml.temperature_threshold, device, kSlowdown));
  gpu.pcie_generation = number(nvml.pcie_generation);
  gpu.pcie_width = number(nvml.pcie_width);
  gpu.max_pcie_generation = number(nvml.max_pcie_generation);
  gpu.max_pcie_width = number(nvml.max_pcie_width);
  gpu.persistence = as<bool>(ask<unsigned>(nvml.persistence, device));
  gpu.compute_mode = mode_name(ask<int>(nvml.compute_mode, device));
  unsigned now = 0, after_reset = 0;
  if (nvml.ecc_mode(device, &now, &after_reset) == kNvmlSuccess) {
    gpu.ecc_enabled = now != 0;
  }
  gpu.remapped_rows = read_rows(nvml, device);
  gpu.nvlinks = read_nvlinks(nvml, device);
  gpu.processes = read_processes(nvml, device, root);
  gpu.status = read_status(nvml, device);
  read_place(root, gpu);
}

std::vector<GpuPair> read_pairs(const Nvml& nvml, const std::vector<FoundGpu>& gpus) {
  constexpr int kRead = 0;
  std::vector<GpuPair> pairs;
  for (std::size_t i = 0; i < gpus.size(); ++i) {
    for (std::size_t k = i + 1; k < gpus.size(); ++k) {
      const auto& [first, device] = gpus[i];
      const auto& [second, other] = gpus[k];
      GpuPair pair{
          .first = first.index, .second = second.index, .path = {}, .peer_access = {}};
      pair.nvlinks = links_between(first, second);
      pair.path = path_name(ask<int>(nvml.common_ancestor, device, other));
      if (const auto status = ask<int>(nvml.peer_status, device, other, kRead)) {
        pair.peer_access = *status == 0;
      }
      pairs.push_back(std::move(pair));
    }
  }
  return pairs;
}

}  // namespace lockstep::hardware::detail
