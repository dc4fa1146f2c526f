#pragma once

#include <filesystem>
#include <optional>
#include <string>

namespace lockstep {

// A process that has a TCP port.
struct PortHolder {
  int pid = 0;          // 0: it is another user's, or in another container
  std::string program;  // its command line, shortened
};

// Returns the process that listens on a TCP port of this machine, else one that uses it
// for a connection.
std::optional<PortHolder> find_port_holder(int port,
                                           const std::filesystem::path& proc = "/proc");

// Returns "process 4711 (python train.py)", or that the process can not be seen.
std::string describe(const PortHolder& holder);
std::string describe_holder(int port);

// Returns whether a port is kept only by connections that no process has any more, as
// those of the store of an earlier job are for a minute.
bool only_lingers(int port);

}  // namespace lockstep
