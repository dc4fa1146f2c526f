#pragma once

#include "lockstep/base/files.h"

namespace lockstep::launcher {

// A TCP port that no other process gets: bound on all addresses, with SO_REUSEADDR, but
// not listening. The store sets SO_REUSEADDR too, so it can bind and listen on the port
// while we still hold it, and at no moment is the port free for others.
class HeldPort {
 public:
  // Returns a free one, chosen by the kernel.
  static HeldPort any();

  // Takes this one. Throws Fault::config if a process has it, naming the pid and the
  // program where they can be seen.
  static HeldPort take(int port);

  int port() const noexcept { return port_; }

 private:
  HeldPort(files::Descriptor socket, int port) noexcept;

  files::Descriptor socket_;
  int port_ = 0;
};

}  // namespace lockstep::launcher
