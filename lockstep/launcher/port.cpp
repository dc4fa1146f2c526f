#include "lockstep/launcher/port.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::launcher {
namespace {

using files::Descriptor;
using files::Path;

void set_reuse(const Descriptor& socket, bool reuse) {
  const int value = reuse ? 1 : 0;
  ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &value, sizeof value);
}

// One for IPv6 takes IPv4 as well.
Descriptor open_socket(int family) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket || family != AF_INET6) return socket;
  const int off = 0;
  ::setsockopt(socket.get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof off);
  return socket;
}

// 0, or what errno says.
int bind_everywhere(const Descriptor& socket, int family, int port) {
  const auto number = htons(static_cast<std::uint16_t>(port));
  sockaddr_in6 wide{};
  wide.sin6_family = AF_INET6;
  wide.sin6_port = number;
  sockaddr_in narrow{};
  narrow.sin_family = AF_INET;
  narrow.sin_port = number;
  const int result =
      family == AF_INET6
          ? ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&wide), sizeof wide)
          : ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&narrow),
                   sizeof narrow);
  return result == 0 ? 0 : errno;
}

// Both families have the port at the same offset.
int port_of(const Descriptor& socket) {
  sockaddr_in6 address{};
  socklen_t size = sizeof address;
  if (::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    throw Error(Fault::io, "port: getsockname: ", std::strerror(errno));
  }
  return ntohs(address.sin6_port);
}

[[noreturn]] void refuse(int port, int code) {
  if (code == EADDRINUSE) {
    const auto holder = holder_of(port);
    throw Error(Fault::config, "port: ", port, " is taken by ",
                holder ? describe(*holder) : "a process that can not be seen from here",
                "; end it, choose another --master-port, or leave the port out and a "
                "free one is found");
  }
  if (code == EACCES) {
    throw Error(Fault::config, "port: ", port, " is for root only (",
                std::strerror(code), "); choose one of 1024 to 65535");
  }
  throw Error(Fault::io, "port: can not bind ", port, ": ", std::strerror(code));
}

// "" for a table that is not there (no IPv6) or that this user may not see.
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

// The connections of the store of an earlier job keep its port for a minute.
bool only_lingers(int port) {
  const auto lines = socket_lines("/proc", port);
  return !lines.empty() &&
         std::all_of(lines.begin(), lines.end(),
                     [](const auto& line) { return line.inode == "0"; });
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

HeldPort::HeldPort(Descriptor socket, int port) noexcept
    : socket_(std::move(socket)), port_(port) {}

HeldPort HeldPort::any() {
  return take(0);
}

HeldPort HeldPort::take(int port) {
  if (port < 0 || port > 65'535) {
    throw Error(Fault::config, "port: ", port,
                " is not a TCP port; choose one of 1024 "
                "to 65535");
  }
  int code = EAFNOSUPPORT;
  for (const int family : {AF_INET6, AF_INET}) {
    Descriptor socket = open_socket(family);
    // A kernel without IPv6 may refuse the socket or only its address.
    code = socket ? bind_everywhere(socket, family, port) : errno;
    if (code == EADDRINUSE && only_lingers(port)) {
      set_reuse(socket, true);
      code = bind_everywhere(socket, family, port);
    }
    if (code == 0) {
      // Only now: with it from the start, two launchers could hold the same port, each
      // waiting for its own store to listen.
      set_reuse(socket, true);
      const int bound = port_of(socket);
      return {std::move(socket), bound};
    }
    if (code != EAFNOSUPPORT && code != EADDRNOTAVAIL) break;
  }
  refuse(port, code);
}

std::optional<Holder> holder_of(int port, const Path& proc) {
  for (const bool listening : {true, false}) {
    const auto inodes = socket_inodes(proc, port, listening);
    if (inodes.empty()) continue;
    std::error_code error;
    const std::filesystem::directory_iterator end;
    for (std::filesystem::directory_iterator entry(proc, error); !error && entry != end;
         entry.increment(error)) {
      const auto pid = text::to_integer(entry->path().filename().string());
      if (!pid || !owns_one_of(entry->path(), inodes)) continue;
      return Holder{.pid = static_cast<int>(*pid),
                    .program = program_of(entry->path())};
    }
    return Holder{};
  }
  return std::nullopt;
}

std::string describe(const Holder& holder) {
  if (holder.pid == 0) return "a process of another user or container";
  return str("process ", holder.pid,
             holder.program.empty() ? "" : str(" (", holder.program, ")"));
}

}  // namespace lockstep::launcher
