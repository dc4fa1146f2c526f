#include "lockstep/train/stop.h"

#include <array>
#include <atomic>

#include <signal.h>
#include <unistd.h>

namespace lockstep::train {
namespace {

// A signal handler can reach only static data.
std::atomic<int> asked{0};                 // NOLINT: see above
std::atomic<bool> save_asked{false};       // NOLINT: see above
std::array<struct sigaction, 5> before{};  // NOLINT: see above
constexpr std::array kSignals = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2};

void on_signal(int number) {
  int none = 0;
  const bool first = asked.compare_exchange_strong(none, number);
  if (!first && number == SIGINT) ::_exit(128 + SIGINT);
}

void on_save_signal(int) {
  save_asked = true;
}

}  // namespace

StopRequest::StopRequest() {
  asked = 0;
  save_asked = false;
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    struct sigaction action {};
    action.sa_handler = kSignals[i] == SIGUSR2 ? on_save_signal : on_signal;
    action.sa_flags = SA_RESTART;
    ::sigaction(kSignals[i], &action, &before[i]);
    // A signal that the parent process ignores (nohup) stays ignored.
    if (before[i].sa_handler == SIG_IGN) ::sigaction(kSignals[i], &before[i], nullptr);
  }
}

StopRequest::~StopRequest() {
  for (std::size_t i = 0; i < kSignals.size(); ++i) {
    ::sigaction(kSignals[i], &before[i], nullptr);
  }
}

bool StopRequest::take_save() const noexcept {
  return save_asked.exchange(false);
}

int StopRequest::signal() const noexcept {
  return asked.load(std::memory_order_relaxed);
}

}  // namespace lockstep::train
