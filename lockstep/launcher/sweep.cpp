#include "lockstep/launcher/detail/sweep.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <fcntl.h>
#include <signal.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

// From here on nothing allocates and nothing but the kernel is called, where it is part
// of sweep(): the guard runs it in the child of a process that may have had threads.
namespace lockstep::launcher {
namespace {

using files::Descriptor;

// getdents64's record; glibc's own needs a DIR, which allocates.
struct ProcessEntry {
  std::uint64_t inode;
  std::int64_t offset;
  std::uint16_t bytes;
  std::uint8_t type;
  char name[1];
};

// Returns 0 if it is not a number.
pid_t pid_of(const char* name) noexcept {
  pid_t pid = 0;
  for (; *name != '\0'; ++name) {
    if (*name < '0' || *name > '9') return 0;
    pid = pid * 10 + (*name - '0');
  }
  return pid;
}

// Returns whether the file holds `mark`, which may lie across two reads.
bool holds(int file, std::string_view mark) noexcept {
  std::array<char, 16 << 10> buffer;  // NOLINT: filled by read
  std::size_t kept = 0;
  while (true) {
    const auto got = ::read(file, buffer.data() + kept, buffer.size() - kept);
    if (got <= 0) return false;
    const auto have = kept + static_cast<std::size_t>(got);
    if (::memmem(buffer.data(), have, mark.data(), mark.size()) != nullptr) return true;
    kept = std::min(have, mark.size() - 1);
    std::memmove(buffer.data(), buffer.data() + have - kept, kept);
  }
}

// A process that has ended and was not waited for has an empty environment, so it does
// not count.
bool has_mark(int proc, const char* name, std::string_view mark) noexcept {
  const Descriptor folder(::openat(proc, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return false;
  const Descriptor file(::openat(folder.get(), "environ", O_RDONLY | O_CLOEXEC));
  return file && holds(file.get(), mark);
}

template <typename Visit>
void each_with(std::string_view mark, const Visit& visit) noexcept {
  const Descriptor proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc) return;
  const pid_t self = static_cast<pid_t>(::syscall(SYS_getpid));
  alignas(ProcessEntry) std::array<char, 8 << 10>
      buffer;  // NOLINT: filled by getdents64
  while (true) {
    const auto got =
        ::syscall(SYS_getdents64, proc.get(), buffer.data(), buffer.size());
    if (got <= 0) return;
    for (long at = 0; at < got;) {
      const auto* entry = reinterpret_cast<const ProcessEntry*>(buffer.data() + at);
      at += entry->bytes;
      const pid_t pid = pid_of(static_cast<const char*>(entry->name));
      if (pid <= 0 || pid == self) continue;
      if (has_mark(proc.get(), static_cast<const char*>(entry->name), mark)) visit(pid);
    }
  }
}

// Kills through a descriptor of the process, opened before a second look at its mark:
// its number may have gone to another one in between.
void kill_with(pid_t pid, std::string_view mark) noexcept {
  const Descriptor process(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  if (!process) {
    if (errno == ENOSYS) ::kill(pid, SIGKILL);
    return;
  }
  std::array<char, 32> name{};
  auto* digit = name.data() + name.size() - 1;
  for (pid_t rest = pid; rest > 0; rest /= 10) {
    *--digit = static_cast<char>('0' + rest % 10);
  }
  const Descriptor proc(::open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!proc || !has_mark(proc.get(), digit, mark)) return;
  ::syscall(SYS_pidfd_send_signal, process.get(), SIGKILL, nullptr, 0);
}

}  // namespace

std::string make_mark() {
  std::array<unsigned char, 16> bytes{};
  LOCKSTEP_CHECK(
      ::getrandom(bytes.data(), bytes.size(), 0) == static_cast<ssize_t>(bytes.size()),
      std::strerror(errno));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string mark;
  for (const auto byte : bytes) {
    mark += kDigits[byte >> 4];
    mark += kDigits[byte & 15];
  }
  return mark;
}

std::string job_variable(std::string_view mark) {
  const char* outer = std::getenv(std::string(kJobVariable).c_str());
  if (outer == nullptr || *outer == '\0') return std::string(mark);
  return str(outer, ":", mark);
}

std::vector<pid_t> processes_with(std::string_view mark) {
  std::vector<pid_t> found;
  each_with(mark, [&](pid_t pid) { found.push_back(pid); });
  return found;
}

bool sweep(std::string_view mark, int tries) noexcept {
  // The kernel lists processes before we can read their environments: one that forks
  // and ends in between hides its child from that look, but not from the next.
  constexpr int kSureAfter = 3;
  int empty = 0;
  for (int i = 0; i < tries; ++i) {
    bool found = false;
    each_with(mark, [&](pid_t pid) {
      found = true;
      kill_with(pid, mark);
    });
    empty = found ? 0 : empty + 1;
    if (empty == kSureAfter) return true;
    if (!found) continue;
    const timespec pause{.tv_sec = 0, .tv_nsec = 10'000'000};
    ::nanosleep(&pause, nullptr);
  }
  return false;
}

}  // namespace lockstep::launcher
