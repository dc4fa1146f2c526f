#include "lockstep/launcher/detail/guard.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/launcher/detail/sweep.h"

namespace lockstep::launcher {
namespace {

constexpr char kAllIsWell = 'q';

// A process that reads our standard streams or our sockets must not wait for the guard:
// it keeps nothing but its pipe, as descriptor 3, and the lock of the run, which no
// process may have before the sweep, as descriptor 4.
void keep_only(int pipe_end, int lock) noexcept {
  constexpr int kOutOfTheWay = 5;
  const int null = ::open("/dev/null", O_RDWR);
  for (const int target : {0, 1, 2}) ::dup2(null, target);
  if (lock >= 0) lock = ::fcntl(lock, F_DUPFD, kOutOfTheWay);
  if (pipe_end != 3) ::dup2(pipe_end, 3);
  ::close(4);
  if (lock >= 0) ::dup2(lock, 4);
  if (::syscall(SYS_close_range, 5U, ~0U, 0U) == 0) return;
  for (int fd = 5; fd < 4096; ++fd) ::close(fd);  // kernels before 5.9
}

// Runs in the child of a process that may have threads: system calls only.
[[noreturn]] void watch(int pipe_end, std::string_view mark, int lock) noexcept {
  ::setsid();
  sigset_t all;
  ::sigfillset(&all);
  ::sigprocmask(SIG_SETMASK, &all, nullptr);
  ::prctl(PR_SET_NAME, "lockstep-guard");
  keep_only(pipe_end, lock);
  char word = 0;
  ssize_t got = 0;
  do {
    got = ::read(3, &word, 1);
  } while (got < 0 && errno == EINTR);
  const bool well = got == 1 && word == kAllIsWell;
  if (!well) sweep(mark);
  ::_exit(0);
}

}  // namespace

Guard::Guard(const std::string& mark, int lock) {
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    throw Error(Fault::io, "launcher: cannot make a pipe: ", std::strerror(errno));
  }
  const files::Descriptor reading(ends[0]);
  life_ = files::Descriptor(ends[1]);
  pid_ = ::fork();
  if (pid_ < 0) {
    throw Error(Fault::io, "launcher: cannot start its guard: ", std::strerror(errno));
  }
  if (pid_ == 0) watch(reading.get(), mark, lock);
}

Guard::~Guard() {
  // A guard that a user has killed must not kill us now by SIGPIPE, which a program of
  // a user may not ignore.
  sigset_t pipe, before;
  ::sigemptyset(&pipe);
  ::sigaddset(&pipe, SIGPIPE);
  ::pthread_sigmask(SIG_BLOCK, &pipe, &before);
  if (::write(life_.get(), &kAllIsWell, 1) < 0 && errno == EPIPE &&
      ::sigismember(&before, SIGPIPE) == 0) {
    const timespec now{};
    ::sigtimedwait(&pipe, nullptr, &now);
  }
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
  life_.reset();
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

}  // namespace lockstep::launcher
