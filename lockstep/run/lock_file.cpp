#include "lockstep/run/detail/lock_file.h"

#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <sys/file.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"

namespace lockstep::run {
namespace {

using files::Descriptor;
using std::chrono::milliseconds;
using Json = nlohmann::ordered_json;

constexpr std::int64_t kMostLockBytes = 1 << 16;

std::string to_json(const LockHolder& holder, std::int64_t renewed) {
  return Json{{"host", holder.host},
              {"boot", holder.boot},
              {"pid", holder.pid},
              {"process_start", holder.process_start},
              {"renewed", renewed}}
             .dump() +
         "\n";
}

// Returns the time of the file system, which is a server's where that is shared: the
// clocks of two machines may differ by more than a lease.
std::chrono::nanoseconds file_system_time(const Path& run) {
  const files::TemporaryDirectory probe(run);
  struct stat made {};
  if (::stat(probe.path().c_str(), &made) != 0) {
    files::fail("look at", probe.path(), errno);
  }
  return changed_at(made);
}

}  // namespace

Path lock_file(const Path& run) {
  return run / "lock";
}

std::string boot_id() {
  try {
    return std::string(
        text::trim(files::read("/proc/sys/kernel/random/boot_id", kMostLockBytes)));
  } catch (const Error&) {
    return "";
  }
}

Descriptor open_lock(const Path& path, int flags) {
  Descriptor file(::open(path.c_str(), flags | O_RDWR | O_NONBLOCK | O_CLOEXEC, 0644));
  struct stat info {};
  const int error = errno;
  const bool odd = file ? ::fstat(file.get(), &info) == 0 && !S_ISREG(info.st_mode)
                        : error == EISDIR || error == ENXIO;
  if (odd) {
    throw Error(Fault::io, "cannot lock the run: '", path.string(),
                "' is not a regular file; remove it");
  }
  if (!file) files::fail("open", path, error);
  return file;
}

Descriptor look_at(const Path& path) {
  return Descriptor(::open(path.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC));
}

bool is_in_place(int fd, const Path& path) {
  struct stat open {
  }, named{};
  return ::fstat(fd, &open) == 0 && ::stat(path.c_str(), &named) == 0 &&
         open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

std::optional<LockHolder> holder_in(int fd) {
  std::string bytes(static_cast<std::size_t>(kMostLockBytes), '\0');
  const auto got = ::pread(fd, bytes.data(), bytes.size(), 0);
  if (got <= 0) return std::nullopt;
  bytes.resize(static_cast<std::size_t>(got));
  const auto json = Json::parse(bytes, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return std::nullopt;
  try {
    return LockHolder{.host = json.at("host").get<std::string>(),
                      .boot = json.at("boot").get<std::string>(),
                      .pid = json.at("pid").get<int>(),
                      .process_start = json.at("process_start").get<std::int64_t>()};
  } catch (const Json::exception&) {
    return std::nullopt;
  }
}

void write_holder(int fd, const LockText& content, const Path& path) {
  const auto text = to_json(content.holder, content.renewed);
  if (::pwrite(fd, text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()) ||
      ::ftruncate(fd, static_cast<off_t>(text.size())) != 0) {
    files::fail("write", path, errno);
  }
  ::fdatasync(fd);  // so that other machines see it; a power cut needs no lock
}

std::chrono::nanoseconds changed_at(const struct stat& file) {
  return std::chrono::seconds(file.st_mtim.tv_sec) +
         std::chrono::nanoseconds(file.st_mtim.tv_nsec);
}

milliseconds age(int fd, const Path& run) {
  struct stat open {};
  if (::fstat(fd, &open) != 0) files::fail("look at", lock_file(run), errno);
  return std::chrono::duration_cast<milliseconds>(file_system_time(run) -
                                                  changed_at(open));
}

Flock try_flock(int fd, int kind) {
  if (::flock(fd, kind | LOCK_NB) == 0) return Flock::held;
  return errno == EWOULDBLOCK ? Flock::taken : Flock::unknown;
}

Flock flock_to_keep(int fd) {
  constexpr int kLooks = 5;
  auto result = try_flock(fd, LOCK_EX);
  for (int look = 1; look < kLooks && result == Flock::taken; ++look) {
    std::this_thread::sleep_for(milliseconds(5));
    result = try_flock(fd, LOCK_EX);
  }
  return result;
}

}  // namespace lockstep::run
