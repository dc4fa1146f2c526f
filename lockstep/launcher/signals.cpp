#include "lockstep/launcher/signals.h"

#include <atomic>
#include <cerrno>
#include <cstring>

#include <sys/signalfd.h>
#include <unistd.h>

#include "lockstep/base/error.h"

namespace lockstep::launcher {
namespace {

bool is_ignored(int number) {
  struct sigaction now {};
  return ::sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

}  // namespace

Signals::Signals() {
  sigset_t ours;
  ::sigemptyset(&ours);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGTSTP}) {
    // The parent process wants it ignored: nohup, or a script for its background jobs.
    if (!is_ignored(number)) ::sigaddset(&ours, number);
  }
  file_ = files::Descriptor(::signalfd(-1, &ours, SFD_CLOEXEC | SFD_NONBLOCK));
  LOCKSTEP_CHECK(static_cast<bool>(file_), std::strerror(errno));
  LOCKSTEP_CHECK(::pthread_sigmask(SIG_BLOCK, &ours, &before_) == 0);
}

Signals::~Signals() {
  // A signal that was not taken must not strike once it is let through.
  while (take()) {
  }
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

std::optional<int> Signals::take() {
  signalfd_siginfo info{};
  if (::read(file_.get(), &info, sizeof info) != sizeof info) return std::nullopt;
  return static_cast<int>(info.ssi_signo);
}

namespace {

constexpr std::array kEnding = {SIGTERM, SIGHUP, SIGUSR1};

// A signal handler can reach only static data.
std::atomic<int> chosen_status{0};  // NOLINT: see above

void exit_at_once(int) {
  ::_exit(chosen_status);
}

}  // namespace

ExitOnSignals::ExitOnSignals(int status) {
  chosen_status = status;
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = exit_at_once;
    if (is_ignored(kEnding[i])) action.sa_handler = SIG_IGN;
    ::sigaction(kEnding[i], &action, &before_[i]);
  }
}

ExitOnSignals::~ExitOnSignals() {
  for (std::size_t i = 0; i < kEnding.size(); ++i) {
    ::sigaction(kEnding[i], &before_[i], nullptr);
  }
}

}  // namespace lockstep::launcher
