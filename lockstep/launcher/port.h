#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "lockstep/base/files.h"

namespace lockstep::launcher {

// A TCP port that nobody else gets: bound on all addresses, with SO_REUSEADDR, but not
// listening. The store sets SO_REUSEADDR too, so it can bind and listen on the port
// while we still hold it, and at no moment is the port free for others.
class HeldPort {
 public:
  // A free one, chosen by the kernel.
  static HeldPort any();

  // This one. Throws Fault::config if somebody has it, naming the pid and the program
  // where they can be seen.
  static HeldPort take(int port);

  int port() const noexcept { return port_; }

 private:
  HeldPort(files::Descriptor socket, int port) noexcept;

  files::Descriptor socket_;
  int port_ = 0;
};

struct Holder {
  int pid = 0;          // 0: it is another user's, or in another container
  std::string program;  // its command line, shortened
};

// Who listens on a TCP port of this machine, else who uses it for a connection.
std::optional<Holder> holder_of(int port, const std::filesystem::path& proc = "/proc");

// "process 4711 (python train.py)", or that it can not be seen.
std::string describe(const Holder& holder);

}  // namespace lockstep::launcher
