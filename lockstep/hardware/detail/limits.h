#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/hardware/machine.h"

// The resources that the kernel lets this process use, from files below a root
// directory.
namespace lockstep::hardware::detail {

// Reads a small file of /proc or /sys; "" when it is not there.
std::string read_or_empty(const Path& path);
std::string text_at(const Path& path);  // the same, trimmed

// Returns the value of a "Key : value" line, trimmed; "" without one.
std::string line_value(const std::string& text, std::string_view key);

// Returns a value of /proc/meminfo, 0 without one.
std::int64_t meminfo_bytes(const std::string& meminfo, std::string_view key);

// Parses "0-3,8,10-11" into 0 1 2 3 8 10 11; skips entries that are no numbers.
std::set<int> cpu_list(std::string_view list);

// One block of /proc/cpuinfo. Arm and virtual machines leave the ids out.
struct CpuEntry {
  int number = -1;
  int socket = 0;
  std::optional<int> core;
};
std::vector<CpuEntry> cpu_entries(const std::string& cpuinfo);

struct Processors {
  std::string model;
  int physical = 1;
  int logical = 1;
  int sockets = 1;
};
Processors processors(const Path& root);

struct Memory {
  std::int64_t total_bytes = 0;
  std::int64_t available_bytes = 0;
};
Memory memory(const Path& root);

// The tightest limits of this process's cgroup and those above it, version 1 or 2.
struct CgroupLimits {
  std::optional<double> cores;
  std::optional<std::int64_t> memory_bytes;
  std::optional<std::int64_t> memory_left_bytes;
};
CgroupLimits cgroup_limits(const Path& root);

// Returns a variable of this process's environment, read from /proc so that a fixture
// can set it.
std::optional<std::string> variable(const Path& root, std::string_view name);

}  // namespace lockstep::hardware::detail
