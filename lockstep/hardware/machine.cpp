#include "lockstep/hardware/machine.h"

#include <limits>

#include "lockstep/base/text.h"
#include "lockstep/hardware/detail/host.h"
#include "lockstep/hardware/detail/limits.h"
#include "lockstep/hardware/detail/nvml.h"

namespace lockstep::hardware {
namespace {

std::string first_line(const Path& path) {
  const auto content = detail::read_or_empty(path);
  return std::string(text::trim(content.substr(0, content.find('\n'))));
}

// Reads PRETTY_NAME="Debian GNU/Linux 12 (bookworm)".
std::string os_name(const Path& root) {
  for (const auto& line :
       text::split(detail::read_or_empty(root / "etc/os-release"), '\n')) {
    constexpr std::string_view kKey = "PRETTY_NAME=";
    if (!text::starts_with(line, kKey)) continue;
    std::string name = line.substr(kKey.size());
    std::erase(name, '"');
    return name;
  }
  return "";
}

// Parses "8", or "8,2" with a number for each level of nesting: the first is ours.
std::optional<int> omp_num_threads(const Path& root) {
  const auto list = detail::variable(root, "OMP_NUM_THREADS").value_or("");
  const auto threads = text::to_integer(text::trim(list.substr(0, list.find(','))));
  if (!threads || *threads < 1 || *threads > std::numeric_limits<int>::max()) {
    return std::nullopt;
  }
  return static_cast<int>(*threads);
}

// Detects all but the GPUs.
Machine detect_host(const Path& root) {
  Machine machine;
  machine.hostname = first_line(root / "proc/sys/kernel/hostname");
  machine.kernel = first_line(root / "proc/sys/kernel/osrelease");
  machine.os = os_name(root);

  const auto processors = detail::processors(root);
  machine.cpu_model = processors.model;
  machine.physical_cores = processors.physical;
  machine.logical_cores = processors.logical;
  machine.sockets = processors.sockets;

  const auto memory = detail::memory(root);
  machine.memory_total_bytes = memory.total_bytes;
  machine.memory_available_bytes = memory.available_bytes;

  machine.omp_num_threads = omp_num_threads(root);
  return machine;
}

}  // namespace

Machine detect(const Path& root) {
  auto machine = detect_host(root);
  detail::add_gpus(root, detail::Depth::basic, machine);
  return machine;
}

HostMemory host_memory(const Path& root) {
  const auto memory = detail::memory(root);
  return {memory.total_bytes, memory.available_bytes};
}

Machine inspect(const Path& run_directory, const Path& root) {
  auto machine = detect_host(root);
  detail::add_gpus(root, detail::Depth::full, machine);
  detail::add_xid_errors(root, machine);
  detail::add_cpu_facts(root, machine);
  detail::add_memory_facts(root, machine);
  machine.disk = detail::read_disk(run_directory, root);
  machine.network = detail::network_interfaces(root);
  machine.rdma_devices = detail::rdma_devices(root);
  return machine;
}

}  // namespace lockstep::hardware
