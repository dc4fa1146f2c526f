#include "lockstep/hardware/cpu_topology.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/detail/limits.h"

namespace lockstep::hardware {
namespace {

std::set<int> list_at(const Path& path) {
  return detail::cpu_list(text::trim(detail::read_or_empty(path)));
}

std::set<int> usable_cpus(const Path& root) {
  const auto online = list_at(root / "sys/devices/system/cpu/online");
  auto allowed = detail::cpu_list(detail::line_value(
      detail::read_or_empty(root / "proc/self/status"), "Cpus_allowed_list"));
  if (online.empty()) return allowed;
  if (allowed.empty()) return online;
  std::erase_if(allowed, [&](int cpu) { return !online.contains(cpu); });
  return allowed;
}

std::map<int, int> numa_nodes(const Path& root) {
  std::map<int, int> node_of;
  const Path nodes = root / "sys/devices/system/node";
  for (const int node : list_at(nodes / "online")) {
    for (const int cpu : list_at(nodes / str("node", node) / "cpulist")) {
      node_of[cpu] = node;
    }
  }
  return node_of;
}

// The smallest number among the hyper-threads of a CPU's core stands for the core.
std::optional<int> core_from_sys(const Path& topology) {
  for (const auto* name : {"core_cpus_list", "thread_siblings_list"}) {
    const auto siblings = list_at(topology / name);
    if (!siblings.empty()) return *siblings.begin();
  }
  return std::nullopt;
}

std::map<int, Cpu> cpus_of_cpuinfo(const Path& root) {
  std::map<std::pair<int, int>, int> first_of_core;
  std::map<int, Cpu> cpus;
  for (const auto& entry :
       detail::cpu_entries(detail::read_or_empty(root / "proc/cpuinfo"))) {
    Cpu cpu{.number = entry.number, .core = entry.number, .socket = entry.socket};
    if (entry.core) {
      const std::pair core(entry.socket, *entry.core);
      cpu.core = first_of_core.try_emplace(core, entry.number).first->second;
    }
    cpus[entry.number] = cpu;
  }
  return cpus;
}

}  // namespace

int CpuTopology::num_cores() const {
  std::set<int> cores;
  for (const auto& cpu : cpus) cores.insert(cpu.core);
  return static_cast<int>(cores.size());
}

CpuTopology cpu_topology(const Path& root) {
  const auto node_of = numa_nodes(root);
  auto known = cpus_of_cpuinfo(root);
  auto usable = usable_cpus(root);
  if (usable.empty()) {
    for (const auto& [number, cpu] : known) usable.insert(number);
  }
  CpuTopology topology;
  for (const int number : usable) {
    Cpu cpu{.number = number, .core = number};
    if (const auto found = known.find(number); found != known.end()) {
      cpu = found->second;
    }
    const Path about = root / str("sys/devices/system/cpu/cpu", number) / "topology";
    if (const auto core = core_from_sys(about)) cpu.core = *core;
    const auto socket = text::to_integer(
        text::trim(detail::read_or_empty(about / "physical_package_id")));
    // Boards without sockets say -1.
    if (socket) cpu.socket = std::max(0, static_cast<int>(*socket));
    const auto node = node_of.find(number);
    if (node != node_of.end()) cpu.numa_node = node->second;
    topology.cpus.push_back(cpu);
  }
  if (const auto quota = detail::cgroup_limits(root).cores) {
    topology.quota = std::max(1, static_cast<int>(std::floor(*quota)));
  }
  return topology;
}

std::vector<int> cpus_near(const std::string& pci_id, const Path& root) {
  if (pci_id.empty() || pci_id.find('/') != std::string::npos) return {};
  const auto cpus = list_at(root / "sys/bus/pci/devices" / pci_id / "local_cpulist");
  return {cpus.begin(), cpus.end()};
}

std::string cpu_list_text(const std::vector<int>& cpus) {
  std::string text;
  for (std::size_t i = 0; i < cpus.size();) {
    auto last = i;
    while (last + 1 < cpus.size() && cpus[last + 1] == cpus[last] + 1) ++last;
    text += str(text.empty() ? "" : ",", cpus[i]);
    if (last > i) text += str("-", cpus[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace lockstep::hardware
