#pragma once

#include <stdexcept>
#include <string>
#include <string_view>

#include "lockstep/base/str.h"

namespace lockstep {

// Tells a caller how to act on an error. Every boundary (exit status, HTTP status, log
// colour) is one table keyed by this enum. The values are exit statuses that launchers
// read back: existing ones never change.
enum class Fault {
  config = 2,     // the request is impossible: fix it, never retry
  hardware = 3,   // a device or a library of this machine is missing or unhealthy
  io = 4,         // a file or a socket failed
  comm = 5,       // a peer died or timed out: restart from the last checkpoint
  diverged = 6,   // the numbers went bad: another recipe may help, a retry will not
  internal = 70,  // our bug
};

class Error : public std::runtime_error {
 public:
  template <typename... Parts>
  explicit Error(Fault fault, const Parts&... parts)
      : std::runtime_error(::lockstep::str(parts...)), fault_(fault) {}

  Fault fault() const noexcept { return fault_; }

 private:
  Fault fault_;
};

std::string_view name_of(Fault fault) noexcept;

// Returns the status that a worker exits with; a launcher reads it back to decide
// whether a restart can help. fault_of(exit_status(f)) == f; a status that is no
// fault's reads as internal.
int exit_status(Fault fault) noexcept;
Fault fault_of(int exit_status) noexcept;

// Returns the status that the `lockstep` command ends with: 2 usage or config, 3
// environment, 1 training failed.
int shell_status(Fault fault) noexcept;

// Exit statuses that are not faults (docs/run_directory.md lists all of them).
inline constexpr int kExitOk = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitEnvironment = 3;
inline constexpr int kExitStopped = 75;  // stopped by request, a rerun resumes

// Returns the exit status of a run that was asked to stop by a signal: 75 when a rerun
// resumes, else 128 + signal. Ctrl-C comes from a user, who sees it as an interruption.
int stop_status(int signal, bool rerun_resumes) noexcept;

namespace detail {
struct SourceLine {
  const char* file;
  int line;
};
[[noreturn]] void check_failed(std::string_view expression, const std::string& values,
                               const SourceLine& place);
}  // namespace detail

}  // namespace lockstep

// For our own invariants: throws Fault::internal with the expression, both sides and
// the place. A user's mistake is not one: throw Error(Fault::config, ...) with the
// remedy.
#define LOCKSTEP_CHECK(condition, ...)                                           \
  do {                                                                           \
    if (!(condition)) {                                                          \
      ::lockstep::detail::check_failed(#condition, ::lockstep::str(__VA_ARGS__), \
                                       {__FILE__, __LINE__});                    \
    }                                                                            \
  } while (false)
