#pragma once

#include <sys/types.h>

namespace lockstep::comm::detail {

// Returns whether a process of this machine has ended, reaped or not.
bool is_gone(pid_t pid);

}  // namespace lockstep::comm::detail
