#include "lockstep/base/leftovers.h"

#include <cerrno>
#include <chrono>
#include <fstream>
#include <optional>

#include <fmt/format.h>
#include <signal.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "lockstep/base/hash.h"
#include "lockstep/base/text.h"

namespace lockstep::files {
namespace {

constexpr std::size_t kHostDigits = 8;
// Long enough for clocks that differ and for a save that takes hours.
constexpr std::chrono::hours kAbandoned{24};

// A process number means something on its host only, and there in its own container.
std::string host_mark() {
  utsname names{};
  ::uname(&names);
  char space[64] = "";
  static_cast<void>(::readlink("/proc/self/ns/pid", space, sizeof space - 1));
  // Machines may share their name, and the number of their first name space.
  std::ifstream boot("/proc/sys/kernel/random/boot_id");
  std::string kernel;
  std::getline(boot, kernel);
  const auto hash = hash_of(kernel, hash_of(space, hash_of(names.nodename)));
  return fmt::format("{:08x}", static_cast<std::uint32_t>(hash));
}

struct Owner {
  std::string host;
  pid_t pid = 0;
};

// Parses a name such as ".run.json.1b2c3d4e-4711.x1Y2z3"; empty if it is not one of
// ours.
std::optional<Owner> owner_of(std::string_view name) {
  const auto dot = name.rfind('.');
  if (dot == std::string_view::npos || dot == 0) return std::nullopt;
  if (name.front() != '.' && !text::starts_with(name, "lockstep.")) return std::nullopt;
  const auto before = name.rfind('.', dot - 1);
  if (before == std::string_view::npos) return std::nullopt;
  const auto mark = name.substr(before + 1, dot - before - 1);
  if (mark.size() < kHostDigits + 2 || mark[kHostDigits] != '-') return std::nullopt;
  const auto host = mark.substr(0, kHostDigits);
  if (host.find_first_not_of("0123456789abcdef") != std::string_view::npos) {
    return std::nullopt;
  }
  const auto pid = text::to_integer(mark.substr(kHostDigits + 1));
  if (!pid || *pid <= 0 || *pid > 1 << 30) return std::nullopt;
  return Owner{std::string(host), static_cast<pid_t>(*pid)};
}

bool is_abandoned(const Path& path, const Owner& owner, const std::string& here) {
  if (owner.host == here) return ::kill(owner.pid, 0) != 0 && errno == ESRCH;
  std::error_code error;
  const auto written = std::filesystem::last_write_time(path, error);
  return !error && std::filesystem::file_time_type::clock::now() - written > kAbandoned;
}

}  // namespace

std::string owner_mark() {
  return fmt::format("{}-{}", host_mark(), ::getpid());
}

void sweep_leftovers(const Path& directory) noexcept {
  try {
    const auto here = host_mark();
    std::error_code error;
    std::vector<Path> found;
    std::filesystem::directory_iterator at(directory, error);
    for (; !error && at != std::filesystem::directory_iterator(); at.increment(error)) {
      const auto owner = owner_of(at->path().filename().string());
      if (owner && is_abandoned(at->path(), *owner, here)) found.push_back(at->path());
    }
    for (const auto& path : found) std::filesystem::remove_all(path, error);
  } catch (const std::exception&) {
    // A leftover is no failure.
  }
}

}  // namespace lockstep::files
