#pragma once

#include <array>
#include <optional>
#include <string>

#include <signal.h>

#include "lockstep/base/files.h"

namespace lockstep::launcher {

// Receives SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2 and SIGTSTP as data instead of
// interruptions, for as long as it lives. One that is ignored when it is made (nohup)
// stays ignored.
//
// Threads: make it before any other thread, so that all of them have the signals
// blocked.
class Signals {
 public:
  Signals();
  ~Signals();
  Signals(const Signals&) = delete;
  Signals& operator=(const Signals&) = delete;

  // Returns a descriptor that is readable when a signal has come; for poll().
  int fd() const noexcept { return file_.get(); }

  // Returns the next signal, without waiting.
  std::optional<int> take();

 private:
  files::Descriptor file_;
  sigset_t before_{};
};

// While it lives, SIGTERM, SIGHUP and SIGUSR1 end this process with a status of our
// choice, at once: for a time in which there is nothing to save or to clean up. One
// that is ignored when it is made stays ignored.
class ExitOnSignals {
 public:
  explicit ExitOnSignals(int status);
  ~ExitOnSignals();  // puts back what was before
  ExitOnSignals(const ExitOnSignals&) = delete;
  ExitOnSignals& operator=(const ExitOnSignals&) = delete;

 private:
  std::array<struct sigaction, 3> before_{};
};

}  // namespace lockstep::launcher
