#include "lockstep/launcher/parent_watch.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launcher {

ParentWatch::ParentWatch(std::function<void()> on_death)
    : on_death_(std::move(on_death)), parent_(::getppid()) {
  ended_ = files::Descriptor(static_cast<int>(::syscall(SYS_pidfd_open, parent_, 0)));
  std::array<int, 2> ends{};
  LOCKSTEP_CHECK(::pipe2(ends.data(), O_CLOEXEC) == 0, std::strerror(errno));
  stop_read_ = files::Descriptor(ends[0]);
  stop_write_ = files::Descriptor(ends[1]);
  thread_ = std::thread([this] {
    // Signals are for the other threads.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    watch();
  });
}

ParentWatch::~ParentWatch() {
  stop_write_.reset();
  thread_.join();
}

void ParentWatch::watch() const {
  std::array<pollfd, 2> wanted{
      {{.fd = stop_read_.get(), .events = POLLIN, .revents = 0},
       {.fd = ended_.get(), .events = POLLIN, .revents = 0}}};
  // Without a pidfd (kernels before 5.3) ask now and then; and once at the start, since
  // the parent may have ended before it could be watched.
  const int limit_ms = ended_ ? -1 : 200;
  while (::getppid() == parent_) {
    const int ready = ::poll(wanted.data(), wanted.size(), limit_ms);
    if (ready < 0 && errno != EINTR) return;
    if (wanted[0].revents != 0) return;
    if (wanted[1].revents != 0) break;
  }
  on_death_();
}

}  // namespace lockstep::launcher
