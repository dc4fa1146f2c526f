#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/service/unix_users.h"

namespace lockstep::service {

// A process that goes on when the one that started it ends, however that happens.
struct Detached {
  std::vector<std::string> arguments;  // the first is the path of the program
  // All that it gets: nothing is inherited.
  std::vector<std::pair<std::string, std::string>> environment;
  files::Path log;             // its standard output and error are appended here
  std::vector<int> cpus = {};  // that it and its children may run on; empty: all
  // Whom it runs as; nothing: as we do. All that stands below is made by it, so that
  // whatever is in the way there is met with that user's rights and not with ours.
  std::optional<UnixUser> user = {};
  files::Path folder = {};  // that it works in and that `log` is in; "": as we do
  std::vector<std::pair<files::Path, std::string>> files = {};  // are in `folder`
};

// Starts it as the leader of a session of its own, with no open files but its log, and
// without a way to more rights than its user has. Throws Fault::io if it can not be
// started.
void start_detached(const Detached& wanted);

// Returns the variables of a supervisor: what finds programs, libraries and devices,
// and nothing else of ours, which may hold secrets.
std::vector<std::pair<std::string, std::string>> clean_environment(
    const std::vector<std::pair<std::string, std::string>>& ours);

// The same for a supervisor that runs as this user: its home and names, and no folders
// of ours.
std::vector<std::pair<std::string, std::string>> environment_of(
    const UnixUser& user,
    const std::vector<std::pair<std::string, std::string>>& clean);

}  // namespace lockstep::service
