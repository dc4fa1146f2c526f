#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/files.h"

namespace lockstep::service {

// A process that goes on when the one that started it ends, however that happens.
struct Detached {
  std::vector<std::string> arguments;  // the first is the path of the program
  // All that it gets: nothing is inherited.
  std::vector<std::pair<std::string, std::string>> environment;
  files::Path log;             // its standard output and error are appended here
  std::vector<int> cpus = {};  // that it and its children may run on; empty: all
};

// Starts it as the leader of a session of its own, with no open files but its log.
// Throws Fault::io if it can not be started.
void start_detached(const Detached& wanted);

// Returns the variables of a supervisor: what finds programs, libraries and devices,
// and nothing else of ours, which may hold secrets.
std::vector<std::pair<std::string, std::string>> clean_environment(
    const std::vector<std::pair<std::string, std::string>>& ours);

}  // namespace lockstep::service
