#include "lockstep/base/terminal.h"

#include <fcntl.h>
#include <unistd.h>

namespace lockstep::terminal {

bool wants_color(const Variable& variable, bool is_terminal) {
  if (variable("NO_COLOR")) return false;
  for (const auto* name : {"FORCE_COLOR", "CLICOLOR_FORCE"}) {
    const auto force = variable(name);
    if (force && *force != "0") return true;
  }
  return is_terminal && variable("TERM") != "dumb";
}

void open_standard_streams() noexcept {
  int fd = ::open("/dev/null", O_RDWR);
  while (fd >= 0 && fd <= STDERR_FILENO) fd = ::open("/dev/null", O_RDWR);
  if (fd > STDERR_FILENO) ::close(fd);
}

}  // namespace lockstep::terminal
