#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "lockstep/run/run_directory.h"

namespace lockstep::run {

// The process that works on a run.
struct LockHolder {
  std::string host;
  std::string boot;  // of that machine's kernel: tells machines of one name apart
  int pid = 0;
  std::int64_t process_start = 0;  // in the kernel's ticks

  std::string text() const;  // "process 4711 on node3"
};

LockHolder this_process();

struct LockOptions {
  // Takes the run from a process of another machine without waiting for its lease to
  // end; that process notices and ends. One of this machine has to be stopped first.
  bool take_over = false;
  // A holder on another machine is alive as long as it has renewed its lock within this
  // time, by the clock of the file system.
  std::chrono::milliseconds lease{60'000};
  std::chrono::milliseconds renew_every{10'000};
  LockHolder self = this_process();
  std::function<void(std::string_view)> say = {};  // one sentence, before it waits
  // Asked while it waits; true gives up (Fault::comm). May be empty.
  std::function<bool()> interrupted = {};
  // Called by the thread of the lock, with the process that took it over. May be empty.
  std::function<void(const std::string&)> on_lost = {};
};

// The right to work on a run directory: one process at a time has it, whatever host it
// is on. It is the file `lock` of the directory, locked with flock(2), which a dead
// process can not hold, and renewed all the time for machines where that is not seen.
//
// Threads: one of its own renews the lock; lost_to() may be called by any.
class RunLock {
 public:
  // Waits for a lease of another machine that may have ended, a lease long at most.
  // Throws Fault::config, naming the process, if one works on the run.
  static RunLock take(const Path& run, const LockOptions& options = {});

  RunLock(RunLock&&) noexcept;
  RunLock& operator=(RunLock&&) = delete;
  ~RunLock();  // gives it back

  // Call it when the directory was renamed.
  void moved_to(const Path& run);

  // Returns the process that has taken it over; "" while it is ours.
  std::string lost_to() const;

  // Returns it for a process that must outlive this one; the lock is held until all
  // have closed it.
  int descriptor() const noexcept;

 private:
  class Impl;
  explicit RunLock(std::unique_ptr<Impl> impl);

  std::unique_ptr<Impl> impl_;
};

// Returns whether the process of a run that is not over may be alive: by its lock,
// where there is one, else by its record.
bool may_be_alive(const RunDirectory& run, const RunRecord& record);

}  // namespace lockstep::run
