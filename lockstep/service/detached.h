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
  files::Path folder = {};     // whose owner makes the log; empty: we
  std::vector<int> cpus = {};  // that it and its children may run on; empty: all
  std::string unix_user = {};  // runs as this user; "": as we do
};

// Starts it as the leader of a session of its own, with no open files but its log.
// Throws Fault::io if it can not be started, Fault::config for an unknown user.
void start_detached(const Detached& wanted);

// Replaces what a process of another Unix user would take for its own: HOME, USER,
// LOGNAME and the folders of XDG. Throws Fault::config for an unknown user.
void become_home_of(const std::string& unix_user,
                    std::vector<std::pair<std::string, std::string>>& environment);

// Gives a folder that we have just made to a Unix user, and lets that one reach it:
// the two folders above it can be passed through, not read.
void give_to(const std::string& unix_user, const files::Path& folder);

// Returns the variables of a supervisor: what finds programs, libraries and devices,
// and nothing else of ours, which may hold secrets.
std::vector<std::pair<std::string, std::string>> clean_environment(
    const std::vector<std::pair<std::string, std::string>>& ours);

}  // namespace lockstep::service
