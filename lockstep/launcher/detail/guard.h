#pragma once

#include <string>

#include <sys/types.h>

#include "lockstep/base/files.h"

namespace lockstep::launcher {

// A process that outlives this one by a moment: when this one is gone, however that
// happened, it kills every process with the mark (sweep.h) and ends. It sits in a
// session of its own, so that nothing meant for our group or terminal reaches it.
//
// Threads: made before the first rank, by any thread.
class Guard {
 public:
  // Keeps the descriptor `lock` open until its work is done; -1: none. Throws Fault::io
  // if no process can be started.
  explicit Guard(const std::string& mark, int lock = -1);
  ~Guard();  // sends it away
  Guard(const Guard&) = delete;
  Guard& operator=(const Guard&) = delete;

  pid_t pid() const noexcept { return pid_; }

 private:
  pid_t pid_ = -1;
  files::Descriptor life_;  // the write end of a pipe; our death closes it
};

}  // namespace lockstep::launcher
