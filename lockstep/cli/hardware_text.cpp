#include "lockstep/cli/detail/hardware_text.h"

#include <algorithm>

#include <fmt/format.h>

#include "lockstep/base/text.h"
#include "lockstep/base/units.h"

namespace lockstep::cli {
namespace {

using hardware::Gpu;
using hardware::Machine;
using Rows = std::vector<std::vector<std::string>>;

constexpr const char* kUnknown = "n/a";

template <typename T>
std::string shown(const std::optional<T>& value, const char* unit = "") {
  return value ? fmt::format("{}{}", *value, unit) : kUnknown;
}

std::string bytes_of(const std::optional<std::int64_t>& bytes) {
  return bytes ? units::format_bytes(*bytes) : kUnknown;
}

std::string watts(const Gpu& gpu) {
  const auto rounded = [](const std::optional<double>& power) {
    return power ? fmt::format("{:.0f}", *power) : std::string(kUnknown);
  };
  return fmt::format("{}/{} W", rounded(gpu.status.power_watts),
                     rounded(gpu.power_limit_watts));
}

std::string pcie(const Gpu& gpu) {
  if (!gpu.max_pcie_generation) return kUnknown;
  return fmt::format("gen {} x{}", *gpu.max_pcie_generation, shown(gpu.max_pcie_width));
}

std::string memory(const Gpu& gpu) {
  return fmt::format("{} of {}", bytes_of(gpu.status.memory_free_bytes),
                     units::format_bytes(gpu.memory_total_bytes));
}

// Returns a line of the report: the subject, then the facts.
std::string line(std::string_view about, const std::string& facts) {
  return fmt::format("{:<10}{}\n", about, facts);
}

std::string caches(const Machine& machine) {
  std::vector<std::string> parts;
  for (const auto& cache : machine.cpu_caches) {
    parts.push_back(fmt::format(
        "L{}{} {}{}", cache.level, cache.type == "unified" ? "" : " " + cache.type,
        cache.count > 1 ? fmt::format("{} x ", cache.count) : "",
        units::format_bytes(cache.size_bytes)));
  }
  return text::join(parts, ", ");
}

std::string cpu_lines(const Machine& machine) {
  auto result = line(
      "cpu", fmt::format("{}, {} socket{}, {} usable cores ({} threads){}",
                         machine.cpu_model.empty() ? "unknown" : machine.cpu_model,
                         machine.sockets, machine.sockets == 1 ? "" : "s",
                         machine.physical_cores, machine.logical_cores,
                         machine.max_cpu_mhz
                             ? fmt::format(", {:.1f} GHz", *machine.max_cpu_mhz / 1000)
                             : ""));
  if (machine.cgroup_cores) {
    result += line("", fmt::format("the container may use {} cores",
                                   text::from_double(*machine.cgroup_cores)));
  }
  if (!machine.cpu_extensions.empty()) {
    result += line("", text::join(machine.cpu_extensions, " "));
  }
  if (!machine.cpu_caches.empty()) result += line("", caches(machine));
  for (const auto& node : machine.numa_nodes) {
    result += line("", fmt::format("NUMA node {}: CPUs {}, {} free of {}", node.node,
                                   node.cpus.empty() ? "none" : node.cpus,
                                   units::format_bytes(node.memory_free_bytes),
                                   units::format_bytes(node.memory_total_bytes)));
  }
  return result;
}

std::string memory_lines(const Machine& machine) {
  auto facts = fmt::format("{} available of {}",
                           units::format_bytes(machine.memory_available_bytes),
                           units::format_bytes(machine.memory_total_bytes));
  if (machine.cgroup_memory_bytes) facts += " (the container's limit)";
  facts += machine.swap_total_bytes > 0
               ? fmt::format(", swap {}", units::format_bytes(machine.swap_total_bytes))
               : ", no swap";
  if (machine.shared_memory_bytes) {
    facts +=
        fmt::format(", /dev/shm {}", units::format_bytes(*machine.shared_memory_bytes));
  }
  return line("memory", facts);
}

std::string disk_line(const Machine& machine) {
  if (!machine.disk) return "";
  const auto& disk = *machine.disk;
  const auto kind = !disk.rotational ? "" : *disk.rotational ? ", turning" : ", solid";
  return line("disk", fmt::format("{} free of {} in {} ({} on {}{}){}",
                                  units::format_bytes(disk.free_bytes),
                                  units::format_bytes(disk.total_bytes), disk.path,
                                  disk.filesystem.empty() ? kUnknown : disk.filesystem,
                                  disk.mount.empty() ? kUnknown : disk.mount, kind,
                                  disk.writable ? "" : "; it cannot be written"));
}

std::string network_lines(const Machine& machine) {
  std::string result;
  for (const auto& one : machine.network) {
    if (one.kind == "loopback") continue;
    const auto speed =
        one.speed_mbits
            ? fmt::format(", {} Mbit/s", text::with_commas(*one.speed_mbits))
            : "";
    result += line(
        result.empty() ? "network" : "",
        fmt::format("{} ({}, {}{}){}{}", one.name, one.kind, one.state, speed,
                    one.addresses.empty() ? "" : " ", text::join(one.addresses, " ")));
  }
  return result.empty() ? line("network", "only this machine itself") : result;
}

std::string pair_text(const hardware::GpuPair& pair) {
  if (pair.nvlinks > 0) return fmt::format("NV{}", pair.nvlinks);
  return pair.path.value_or(kUnknown);
}

// Returns how GPUs reach each other, as a matrix.
std::string link_lines(const Machine& machine) {
  if (machine.gpu_pairs.empty()) return "";
  Rows rows{{"links"}};
  const auto count = machine.gpus.size();
  for (const auto& gpu : machine.gpus) {
    rows[0].push_back(fmt::format("GPU {}", gpu.index));
    rows.push_back({fmt::format("GPU {}", gpu.index)});
    rows.back().resize(count + 1, "-");
  }
  std::size_t without_peers = 0;
  for (const auto& pair : machine.gpu_pairs) {
    const auto a = static_cast<std::size_t>(pair.first) + 1;
    const auto b = static_cast<std::size_t>(pair.second) + 1;
    if (a > count || b > count) continue;
    rows[a][b] = rows[b][a] = pair_text(pair);
    without_peers += pair.peer_access == false ? 1 : 0;
  }
  auto result = text::table(rows);
  if (without_peers > 0) {
    result += fmt::format("{} of {} pairs cannot read each other's memory directly\n",
                          without_peers, machine.gpu_pairs.size());
  }
  return result;
}

// Returns what a user should look at.
std::vector<std::string> worries(const Gpu& gpu) {
  std::vector<std::string> found;
  if (gpu.remapped_rows && gpu.remapped_rows->failed) {
    found.emplace_back("a failed row of memory could not be replaced: retire it");
  } else if (gpu.remapped_rows && gpu.remapped_rows->pending) {
    found.emplace_back("a failed row of memory is replaced after a reset");
  }
  if (gpu.status.ecc_uncorrected.value_or(0) > 0) {
    found.push_back(fmt::format("{} memory errors that could not be corrected",
                                *gpu.status.ecc_uncorrected));
  }
  if (!gpu.xid_errors.empty()) {
    found.push_back("the driver reports Xid " + gpu.xid_errors.back().message);
  }
  for (const auto& reason :
       gpu.status.throttle_reasons.value_or(std::vector<std::string>())) {
    if (reason == "idle" || reason == "display" || reason == "sync_boost") continue;
    found.push_back("slowed down: " + reason);
  }
  if (gpu.pcie_width && gpu.max_pcie_width && *gpu.pcie_width < *gpu.max_pcie_width) {
    found.push_back(fmt::format("its PCIe link has {} of {} lanes", *gpu.pcie_width,
                                *gpu.max_pcie_width));
  }
  return found;
}

std::string notes_on_gpus(const Machine& machine) {
  std::string result;
  for (const auto& gpu : machine.gpus) {
    for (const auto& worry : worries(gpu)) {
      result += fmt::format("GPU {}: {}\n", gpu.index, worry);
    }
    for (const auto& process : gpu.processes) {
      result += fmt::format("GPU {}: process {} ({}) of {} uses {}\n", gpu.index,
                            process.pid, process.name.empty() ? kUnknown : process.name,
                            process.user.empty() ? kUnknown : process.user,
                            bytes_of(process.memory_bytes));
    }
  }
  return result + unusable_lines(machine);
}

std::string gpu_lines(const Machine& machine) {
  if (machine.gpus.empty()) {
    return line("gpu", "none: " + why_no_gpu(machine)) + notes_on_gpus(machine);
  }
  return line("driver",
              fmt::format(
                  "{}, CUDA up to {}",
                  machine.driver_version.empty() ? kUnknown : machine.driver_version,
                  machine.cuda_driver_version.empty() ? kUnknown
                                                      : machine.cuda_driver_version)) +
         "\n" + gpu_table(machine) + notes_on_gpus(machine) + link_lines(machine);
}

}  // namespace

std::string why_no_gpu(const Machine& machine) {
  return machine.gpu_note.empty() ? "none was found" : machine.gpu_note;
}

std::string unusable_lines(const Machine& machine) {
  std::string result;
  for (const auto& gpu : machine.unusable_gpus) {
    result += fmt::format("the driver's GPU {} cannot be used: {}\n", gpu.nvml_index,
                          gpu.reason);
  }
  return result;
}

std::string gpu_table(const Machine& machine) {
  if (machine.gpus.empty()) return "";
  Rows rows{{"GPU", "NAME", "FREE MEMORY", "COMPUTE", "SMS", "L2", "BUSY", "TEMP",
             "POWER", "CLOCK", "PCIE", "NUMA", "PROCESSES"}};
  for (const auto& gpu : machine.gpus) {
    rows.push_back({fmt::format("{}", gpu.index), gpu.name, memory(gpu),
                    fmt::format("{}.{}", gpu.compute_major, gpu.compute_minor),
                    shown(gpu.multiprocessors), bytes_of(gpu.l2_bytes),
                    shown(gpu.status.utilization_percent, " %"),
                    shown(gpu.status.temperature_celsius, " C"), watts(gpu),
                    shown(gpu.status.sm_clock_mhz, " MHz"), pcie(gpu),
                    shown(gpu.numa_node), fmt::format("{}", gpu.processes.size())});
  }
  return text::table(rows, {3, 4, 6, 7});
}

std::string hardware_text(const Machine& machine) {
  return line("machine", fmt::format("{}, {}, Linux {}", machine.hostname, machine.os,
                                     machine.kernel)) +
         cpu_lines(machine) + memory_lines(machine) + disk_line(machine) +
         network_lines(machine) + gpu_lines(machine);
}

}  // namespace lockstep::cli
