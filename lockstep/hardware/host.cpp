#include "lockstep/hardware/detail/host.h"

#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <tuple>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/detail/limits.h"

namespace lockstep::hardware::detail {
namespace {

// The extensions that decide how fast matrices are multiplied and images are scaled.
constexpr std::array<std::string_view, 22> kExtensions = {
    "sse4_2",   "avx",      "avx2",     "fma",         "f16c",        "avx512f",
    "avx512bw", "avx512vl", "avx_vnni", "avx512_vnni", "avx512_bf16", "avx512_fp16",
    "amx_tile", "amx_bf16", "amx_int8", "asimd",       "asimdhp",     "asimddp",
    "sve",      "sve2",     "bf16",     "i8mm"};

std::optional<long long> number_at(const Path& path) {
  return text::to_integer(text_at(path));
}

std::vector<std::string> extensions_of(const std::string& cpuinfo) {
  auto flags = line_value(cpuinfo, "flags");
  if (flags.empty()) flags = line_value(cpuinfo, "Features");  // Arm
  const auto words = text::split(flags, ' ');
  const std::set<std::string, std::less<>> known(words.begin(), words.end());
  std::vector<std::string> found;
  for (const auto& name : kExtensions) {
    if (known.contains(name)) found.emplace_back(name);
  }
  return found;
}

std::vector<Path> list_entries(const Path& directory, std::string_view prefix) {
  std::vector<Path> entries;
  std::error_code error;
  for (std::filesystem::directory_iterator at(directory, error), end;
       !error && at != end; at.increment(error)) {
    const auto name = at->path().filename().string();
    const auto rest =
        std::string_view(name).substr(std::min(prefix.size(), name.size()));
    const bool numbered = prefix.empty() || text::to_integer(rest).has_value();
    if (text::starts_with(name, prefix) && numbered) entries.push_back(at->path());
  }
  std::sort(entries.begin(), entries.end());
  return entries;
}

// Parses "32K", "30M".
std::int64_t cache_bytes(const std::string& size) {
  if (size.empty()) return 0;
  const auto number = text::to_integer(size.substr(0, size.size() - 1)).value_or(0);
  if (size.back() == 'K') return number << 10;
  if (size.back() == 'M') return number << 20;
  return text::to_integer(size).value_or(0);
}

std::vector<CpuCache> read_caches(const Path& root) {
  // Level, type and size, with the CPUs that share one: each set is one cache.
  std::map<std::tuple<int, std::string, std::int64_t>, std::set<std::string>> found;
  for (const auto& cpu : list_entries(root / "sys/devices/system/cpu", "cpu")) {
    for (const auto& cache : list_entries(cpu / "cache", "index")) {
      const auto level = number_at(cache / "level");
      if (!level) continue;
      found[{static_cast<int>(*level), text::lower(text_at(cache / "type")),
             cache_bytes(text_at(cache / "size"))}]
          .insert(text_at(cache / "shared_cpu_list"));
    }
  }
  std::vector<CpuCache> caches;
  for (const auto& [key, shared] : found) {
    caches.push_back({.level = std::get<0>(key),
                      .type = std::get<1>(key),
                      .size_bytes = std::get<2>(key),
                      .count = static_cast<int>(shared.size())});
  }
  return caches;
}

std::optional<double> max_mhz(const Path& root, const std::string& cpuinfo) {
  const Path frequency =
      root / "sys/devices/system/cpu/cpu0/cpufreq/cpuinfo_max_freq";  // kHz
  if (const auto khz = number_at(frequency)) return static_cast<double>(*khz) / 1000;
  return text::to_double(line_value(cpuinfo, "cpu MHz"));
}

// Parses "Node 0 MemTotal:       32 kB": as in /proc/meminfo, behind the node's name.
std::int64_t node_bytes(const std::string& meminfo, int node, std::string_view key) {
  const auto value = line_value(meminfo, str("Node ", node, " ", key));
  return text::to_integer(value.substr(0, value.find(' '))).value_or(0) * 1024;
}

std::vector<NumaNode> read_numa_nodes(const Path& root) {
  std::vector<NumaNode> nodes;
  const Path all = root / "sys/devices/system/node";
  for (const int number : cpu_list(text_at(all / "online"))) {
    const auto about = all / str("node", number);
    const auto meminfo = read_or_empty(about / "meminfo");
    nodes.push_back({.node = number,
                     .cpus = text_at(about / "cpulist"),
                     .memory_total_bytes = node_bytes(meminfo, number, "MemTotal"),
                     .memory_free_bytes = node_bytes(meminfo, number, "MemFree")});
  }
  return nodes;
}

}  // namespace

void add_cpu_facts(const Path& root, Machine& machine) {
  const auto cpuinfo = read_or_empty(root / "proc/cpuinfo");
  machine.cpu_extensions = extensions_of(cpuinfo);
  machine.cpu_caches = read_caches(root);
  machine.max_cpu_mhz = max_mhz(root, cpuinfo);
  machine.numa_nodes = read_numa_nodes(root);
  machine.cgroup_cores = cgroup_limits(root).cores;
}

void add_memory_facts(const Path& root, Machine& machine) {
  const auto meminfo = read_or_empty(root / "proc/meminfo");
  machine.swap_total_bytes = meminfo_bytes(meminfo, "SwapTotal");
  machine.swap_free_bytes = meminfo_bytes(meminfo, "SwapFree");
  machine.cgroup_memory_bytes = cgroup_limits(root).memory_bytes;
  std::error_code error;
  const auto space = std::filesystem::space(root / "dev/shm", error);
  if (!error) machine.shared_memory_bytes = static_cast<std::int64_t>(space.capacity);
}

}  // namespace lockstep::hardware::detail
