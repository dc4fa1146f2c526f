#include "lockstep/comm/detail/liveness.h"

#include <cerrno>
#include <string>

#include <signal.h>

#include "lockstep/base/error.h"
#include "lockstep/base/files.h"

namespace lockstep::comm::detail {

// A process that has ended but was not reaped can still be signalled: look at its
// state as well.
bool is_gone(pid_t pid) {
  if (::kill(pid, 0) != 0 && errno == ESRCH) return true;
  try {
    const auto stat = files::read(str("/proc/", pid, "/stat"), 4096);
    const auto state = stat.rfind(") ");  // the name before it may hold anything
    return state != std::string::npos && state + 2 < stat.size() &&
           (stat[state + 2] == 'Z' || stat[state + 2] == 'X');
  } catch (const Error&) {
    return true;
  }
}

}  // namespace lockstep::comm::detail
