#include "lockstep/hardware/detail/limits.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep::hardware::detail {
namespace {

std::optional<long long> integer_at(const Path& path) {
  return text::to_integer(text::trim(read_or_empty(path)));
}

Path below(const Path& directory, std::string_view absolute) {
  return directory / Path(absolute).relative_path();
}

// Returns the directories of one cgroup hierarchy from ours up to its root. In a
// container the path of /proc/self/cgroup may be the host's, so directories that are
// not there are fine.
std::vector<Path> chain(const Path& mount, std::string_view group) {
  std::vector<Path> directories;
  for (auto path = Path(group).relative_path(); !path.empty();
       path = path.parent_path()) {
    directories.push_back(mount / path);
  }
  directories.push_back(mount);
  return directories;
}

template <typename T>
void tighten(std::optional<T>& limit, T value) {
  limit = limit ? std::min(*limit, value) : value;
}

struct MemoryFiles {
  Path maximum;
  Path used;
  Path statistics;
};

void apply_memory(CgroupLimits& limits, const MemoryFiles& files) {
  const auto maximum = integer_at(files.maximum).value_or(0);
  const auto used = integer_at(files.used).value_or(0);
  // Version 1 writes a huge number for "no limit".
  if (maximum <= 0 || maximum >= (1LL << 60)) return;
  long long cache = 0;  // the kernel takes file cache back when it is needed
  for (const auto& line : text::split(read_or_empty(files.statistics), '\n')) {
    const auto words = text::split(line, ' ');
    if (words.size() == 2 && words[0] == "inactive_file") {
      cache = text::to_integer(words[1]).value_or(0);
    }
  }
  tighten<std::int64_t>(limits.memory_bytes, maximum);
  tighten<std::int64_t>(limits.memory_left_bytes,
                        std::clamp<long long>(maximum - used + cache, 0, maximum));
}

void apply_version_2(CgroupLimits& limits, const Path& directory) {
  const auto quota = text::split(text::trim(read_or_empty(directory / "cpu.max")), ' ');
  if (quota.size() == 2) {
    const auto allowed = text::to_double(quota[0]);  // "max" is not a number
    const auto period = text::to_double(quota[1]);
    if (allowed && period && *period > 0) tighten(limits.cores, *allowed / *period);
  }
  apply_memory(limits, {.maximum = directory / "memory.max",
                        .used = directory / "memory.current",
                        .statistics = directory / "memory.stat"});
}

void apply_version_1(CgroupLimits& limits, std::string_view controller,
                     const Path& directory) {
  if (controller == "cpu") {
    const auto allowed = integer_at(directory / "cpu.cfs_quota_us").value_or(-1);
    const auto period = integer_at(directory / "cpu.cfs_period_us").value_or(0);
    if (allowed > 0 && period > 0) {
      tighten(limits.cores, static_cast<double>(allowed) / static_cast<double>(period));
    }
  }
  if (controller == "memory") {
    apply_memory(limits, {.maximum = directory / "memory.limit_in_bytes",
                          .used = directory / "memory.usage_in_bytes",
                          .statistics = directory / "memory.stat"});
  }
}

}  // namespace

std::string read_or_empty(const Path& path) {
  constexpr std::int64_t kLimit = 16 << 20;  // cpuinfo of a thousand cores is 2 MB
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return "";
  try {
    return files::read(path, kLimit);
  } catch (const Error&) {
    return "";
  }
}

std::string text_at(const Path& path) {
  return std::string(text::trim(read_or_empty(path)));
}

std::string line_value(const std::string& text, std::string_view key) {
  for (const auto& line : text::split(text, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    if (text::trim(std::string_view(line).substr(0, colon)) == key) {
      return std::string(text::trim(std::string_view(line).substr(colon + 1)));
    }
  }
  return "";
}

std::int64_t meminfo_bytes(const std::string& meminfo, std::string_view key) {
  const auto value = line_value(meminfo, key);  // "24572020 kB"
  return text::to_integer(value.substr(0, value.find(' '))).value_or(0) * 1024;
}

std::set<int> cpu_list(std::string_view list) {
  std::set<int> cpus;
  for (const auto& range : text::split(list, ',')) {
    const auto ends = text::split(text::trim(range), '-');
    const auto first = text::to_integer(ends.front());
    const auto last = text::to_integer(ends.back());
    if (!first || !last || *last - *first > 1 << 16) continue;
    for (auto cpu = *first; cpu <= *last; ++cpu) cpus.insert(static_cast<int>(cpu));
  }
  return cpus;
}

std::vector<CpuEntry> cpu_entries(const std::string& cpuinfo) {
  std::vector<CpuEntry> entries;
  for (const auto& line : text::split(cpuinfo, '\n')) {
    const auto colon = line.find(':');
    if (colon == std::string::npos) continue;
    const auto key = text::trim(std::string_view(line).substr(0, colon));
    const auto value =
        text::to_integer(text::trim(std::string_view(line).substr(colon + 1)));
    if (!value) continue;
    if (key == "processor")
      entries.push_back({.number = static_cast<int>(*value), .socket = 0, .core = {}});
    if (entries.empty()) continue;
    if (key == "physical id") entries.back().socket = static_cast<int>(*value);
    if (key == "core id") entries.back().core = static_cast<int>(*value);
  }
  return entries;
}

Processors processors(const Path& root) {
  const auto cpuinfo = read_or_empty(root / "proc/cpuinfo");
  const auto allowed = cpu_list(
      line_value(read_or_empty(root / "proc/self/status"), "Cpus_allowed_list"));
  std::set<std::pair<int, int>> cores;
  std::set<int> sockets;
  int logical = 0;
  for (const auto& cpu : cpu_entries(cpuinfo)) {
    if (!allowed.empty() && !allowed.contains(cpu.number)) continue;
    ++logical;
    sockets.insert(cpu.socket);
    cores.emplace(cpu.socket, cpu.core.value_or(cpu.number));
  }
  Processors result;
  result.model = line_value(cpuinfo, "model name");
  result.logical = std::max(1, logical);
  result.physical = std::max<int>(1, static_cast<int>(cores.size()));
  result.sockets = std::max<int>(1, static_cast<int>(sockets.size()));
  if (const auto quota = cgroup_limits(root).cores) {
    // Rounded down: threads beyond the quota are stopped by the kernel in mid-step.
    const int whole = std::max(1, static_cast<int>(std::floor(*quota)));
    result.logical = std::min(result.logical, whole);
    result.physical = std::min(result.physical, whole);
  }
  return result;
}

Memory memory(const Path& root) {
  const auto meminfo = read_or_empty(root / "proc/meminfo");
  Memory memory{.total_bytes = meminfo_bytes(meminfo, "MemTotal"),
                .available_bytes = meminfo_bytes(meminfo, "MemAvailable")};
  const auto limits = cgroup_limits(root);
  if (limits.memory_bytes) {
    memory.total_bytes = std::min(memory.total_bytes, *limits.memory_bytes);
    memory.available_bytes =
        std::min(memory.available_bytes, *limits.memory_left_bytes);
  }
  return memory;
}

CgroupLimits cgroup_limits(const Path& root) {
  CgroupLimits limits;
  const Path mount = root / "sys/fs/cgroup";
  // "0::/group" is version 2, "4:cpu,cpuacct:/group" version 1.
  for (const auto& line : text::split(read_or_empty(root / "proc/self/cgroup"), '\n')) {
    const auto first = line.find(':');
    const auto second = line.find(':', first + 1);
    if (first == std::string::npos || second == std::string::npos) continue;
    const auto controllers = line.substr(first + 1, second - first - 1);
    const auto group = line.substr(second + 1);
    if (controllers.empty()) {
      for (const auto& directory : chain(mount, group))
        apply_version_2(limits, directory);
      continue;
    }
    for (const auto& controller : text::split(controllers, ',')) {
      for (const auto& directory : chain(below(mount, controllers), group)) {
        apply_version_1(limits, controller, directory);
      }
      if (controller == controllers) continue;
      for (const auto& directory : chain(below(mount, controller), group)) {
        apply_version_1(limits, controller, directory);
      }
    }
  }
  return limits;
}

std::optional<std::string> variable(const Path& root, std::string_view name) {
  const auto environment = read_or_empty(root / "proc/self/environ");
  for (const auto& entry : text::split(environment, '\0')) {
    const auto equals = entry.find('=');
    if (equals == std::string::npos || entry.substr(0, equals) != name) continue;
    return entry.substr(equals + 1);
  }
  return std::nullopt;
}

}  // namespace lockstep::hardware::detail
