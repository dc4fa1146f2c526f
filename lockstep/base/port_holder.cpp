#include "lockstep/base/port_holder.h"

#include <algorithm>
#include <set>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"
#include "lockstep/base/text.h"

namespace lockstep {
namespace {

using files::Path;

// Returns "" for a table that does not exist (no IPv6) or that this user may not see.
std::string table_or_empty(const Path& path) {
  constexpr std::int64_t kLimit = 64 << 20;  // 400,000 connections
  try {
    return files::read(path, kLimit);
  } catch (const Error&) {
    return "";
  }
}

// A line of /proc/net/tcp that is about a local port.
//   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid ...
//   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 0 0 4711
struct SocketLine {
  bool listens = false;
  std::string inode;  // "0": it lingers, no process has it any more
};

std::vector<SocketLine> socket_lines(const Path& proc, int port) {
  std::vector<SocketLine> found;
  for (const auto* table : {"net/tcp", "net/tcp6"}) {
    for (const auto& line : text::split(table_or_empty(proc / table), '\n')) {
      std::vector<std::string> words;
      for (auto& word : text::split(line, ' ')) {
        if (!word.empty()) words.push_back(std::move(word));
      }
      if (words.size() < 10) continue;
      const auto colon = words[1].rfind(':');
      if (colon == std::string::npos || words[1].size() != colon + 5) continue;
      const auto digits = words[1].substr(colon + 1);
      if (digits.find_first_not_of("0123456789ABCDEF") != std::string::npos) continue;
      if (std::stoi(digits, nullptr, 16) != port) continue;
      found.push_back({.listens = words[3] == "0A", .inode = words[9]});
    }
  }
  return found;
}

std::set<std::string> socket_inodes(const Path& proc, int port, bool listening) {
  std::set<std::string> inodes;
  for (const auto& line : socket_lines(proc, port)) {
    if (line.inode != "0" && line.listens == listening) {
      inodes.insert(line.inode);
    }
  }
  return inodes;
}

bool owns_one_of(const Path& process, const std::set<std::string>& inodes) {
  std::error_code error;
  const std::filesystem::directory_iterator end;
  for (std::filesystem::directory_iterator fd(process / "fd", error);
       !error && fd != end; fd.increment(error)) {
    std::error_code unreadable;
    const auto target = std::filesystem::read_symlink(fd->path(), unreadable).string();
    constexpr std::string_view kPrefix = "socket:[";
    if (!text::starts_with(target, kPrefix) || target.back() != ']') continue;
    if (inodes.contains(
            target.substr(kPrefix.size(), target.size() - kPrefix.size() - 1))) {
      return true;
    }
  }
  return false;
}

std::string program_of(const Path& process) {
  constexpr std::size_t kShown = 80;
  std::string line;
  try {
    line = files::read(process / "cmdline", 1 << 20);
    if (line.empty()) line = files::read(process / "comm", 4096);
  } catch (const Error&) {
    return "";
  }
  for (auto& c : line) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  }
  line = std::string(text::trim(line));
  return line.size() <= kShown ? line : line.substr(0, kShown) + "...";
}

}  // namespace

std::optional<PortHolder> find_port_holder(int port, const Path& proc) {
  for (const bool listening : {true, false}) {
    const auto inodes = socket_inodes(proc, port, listening);
    if (inodes.empty()) continue;
    std::error_code error;
    const std::filesystem::directory_iterator end;
    for (std::filesystem::directory_iterator entry(proc, error); !error && entry != end;
         entry.increment(error)) {
      const auto pid = text::to_integer(entry->path().filename().string());
      if (!pid || !owns_one_of(entry->path(), inodes)) continue;
      return PortHolder{.pid = static_cast<int>(*pid),
                        .program = program_of(entry->path())};
    }
    return PortHolder{};
  }
  return std::nullopt;
}

std::string describe(const PortHolder& holder) {
  if (holder.pid == 0) return "a process of another user or container";
  return str("process ", holder.pid,
             holder.program.empty() ? "" : str(" (", holder.program, ")"));
}

std::string describe_holder(int port) {
  const auto holder = find_port_holder(port);
  return holder ? describe(*holder) : "a process that cannot be seen from here";
}

bool only_lingers(int port) {
  const auto lines = socket_lines("/proc", port);
  return !lines.empty() &&
         std::all_of(lines.begin(), lines.end(),
                     [](const auto& line) { return line.inode == "0"; });
}

}  // namespace lockstep
