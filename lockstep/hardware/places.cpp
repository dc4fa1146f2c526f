// Disks and networks.
#include <algorithm>
#include <array>
#include <map>

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <netinet/in.h>
#include <unistd.h>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/hardware/detail/host.h"
#include "lockstep/hardware/detail/limits.h"

namespace lockstep::hardware::detail {
namespace {

std::optional<int> number_at(const Path& path, long long least) {
  const auto number = text::to_integer(text_at(path));
  if (!number || *number < least) return std::nullopt;
  return static_cast<int>(*number);
}

Path nearest_existing(const Path& path) {
  std::error_code ignored;
  auto at = std::filesystem::absolute(path, ignored).lexically_normal();
  while (at.has_parent_path() && at != at.parent_path() &&
         !std::filesystem::exists(at, ignored)) {
    at = at.parent_path();
  }
  const auto real = std::filesystem::canonical(at, ignored);
  return real.empty() ? at : real;
}

struct Mount {
  std::string point, filesystem, device;  // "8:1"
};

// The kernel writes spaces and the like as \040.
std::string unescaped(const std::string& word) {
  std::string result;
  for (std::size_t i = 0; i < word.size(); ++i) {
    if (word[i] == '\\' && i + 3 < word.size()) {
      const auto digit = [&](std::size_t at) { return (word[at] - '0') & 7; };
      result += static_cast<char>(digit(i + 1) << 6 | digit(i + 2) << 3 | digit(i + 3));
      i += 3;
    } else {
      result += word[i];
    }
  }
  return result;
}

bool is_below(const std::string& path, const std::string& point) {
  if (point == "/") return true;
  return text::starts_with(path, point) &&
         (path.size() == point.size() || path[point.size()] == '/');
}

// "36 35 98:0 /root /mnt/x rw - ext4 /dev/sda1 rw": the longest mount point above
// `path` counts, and the last one mounted among equals.
Mount find_mount(const std::string& path, const Path& root) {
  Mount best;
  for (const auto& line :
       text::split(read_or_empty(root / "proc/self/mountinfo"), '\n')) {
    const auto words = text::split(line, ' ');
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 7 || words.end() - dash < 2) continue;
    const auto point = unescaped(words[4]);
    if (!is_below(path, point) || point.size() < best.point.size()) continue;
    best = {.point = point, .filesystem = *(dash + 1), .device = words[2]};
  }
  return best;
}

std::optional<bool> is_rotational(const std::string& device, const Path& root) {
  const Path block = root / "sys/dev/block" / device;
  // A partition has no queue: the disk above it does.
  for (const auto& place : {block / "queue", block / ".." / "queue"}) {
    if (const auto value = number_at(place / "rotational", 0)) return *value != 0;
  }
  return std::nullopt;
}

std::map<std::string, std::vector<std::string>> addresses() {
  std::map<std::string, std::vector<std::string>> result;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return result;
  for (const auto* at = list; at != nullptr; at = at->ifa_next) {
    if (at->ifa_addr == nullptr) continue;
    std::array<char, INET6_ADDRSTRLEN> text{};
    const int family = at->ifa_addr->sa_family;
    const void* bytes = nullptr;
    if (family == AF_INET) {
      bytes = &reinterpret_cast<const sockaddr_in*>(at->ifa_addr)->sin_addr;
    } else if (family == AF_INET6) {
      bytes = &reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
    }
    if (bytes == nullptr) continue;
    if (::inet_ntop(family, bytes, text.data(), text.size()) == nullptr) continue;
    result[at->ifa_name].emplace_back(text.data());
  }
  ::freeifaddrs(list);
  return result;
}

// The numbers are ARPHRD_* of the kernel.
std::string kind_of(const Path& about) {
  const auto type = text_at(about / "type");
  std::error_code ignored;
  if (type == "772") return "loopback";
  if (type == "32") return "infiniband";
  if (std::filesystem::exists(about / "wireless", ignored)) return "wireless";
  return std::filesystem::exists(about / "device", ignored) ? "ethernet" : "virtual";
}

}  // namespace

Disk read_disk(const Path& directory, const Path& root) {
  const auto place = nearest_existing(directory);
  Disk disk{.path = place.string(), .mount = "", .filesystem = "", .rotational = {}};
  const auto mount = find_mount(disk.path, root);
  disk.mount = mount.point;
  disk.filesystem = mount.filesystem;
  if (!mount.device.empty()) disk.rotational = is_rotational(mount.device, root);
  std::error_code error;
  const auto space = std::filesystem::space(place, error);
  if (!error) {
    disk.total_bytes = static_cast<std::int64_t>(space.capacity);
    disk.free_bytes = static_cast<std::int64_t>(space.available);
  }
  disk.writable = ::access(place.c_str(), W_OK | X_OK) == 0;
  return disk;
}

std::vector<NetworkInterface> network_interfaces(const Path& root) {
  // Addresses are not in files: a fixture has none.
  const auto known = root == "/" ? addresses() : decltype(addresses()){};
  std::vector<NetworkInterface> interfaces;
  std::error_code error;
  for (std::filesystem::directory_iterator at(root / "sys/class/net", error), end;
       !error && at != end; at.increment(error)) {
    const auto& about = at->path();
    if (!std::filesystem::is_directory(about, error)) continue;  // bonding_masters
    NetworkInterface found;
    found.name = about.filename().string();
    found.kind = kind_of(about);
    found.state = text_at(about / "operstate");
    if (found.state.empty()) found.state = "unknown";
    found.speed_mbits = number_at(about / "speed", 1);  // -1: not known
    found.mtu = number_at(about / "mtu", 1);
    found.numa_node = number_at(about / "device/numa_node", 0);
    if (const auto entry = known.find(found.name); entry != known.end()) {
      found.addresses = entry->second;
    }
    interfaces.push_back(std::move(found));
  }
  std::sort(interfaces.begin(), interfaces.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return interfaces;
}

std::vector<std::string> rdma_devices(const Path& root) {
  std::vector<std::string> names;
  std::error_code error;
  for (std::filesystem::directory_iterator at(root / "sys/class/infiniband", error),
       end;
       !error && at != end; at.increment(error)) {
    names.push_back(at->path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace lockstep::hardware::detail
