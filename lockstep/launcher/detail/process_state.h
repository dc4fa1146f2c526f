#pragma once

#include <filesystem>

#include <sys/types.h>

namespace lockstep::launcher {

// The kernel's letter for what a process is at: 'R' running, 'S' and 'D' waiting, 'T'
// stopped, 't' held by a debugger, 'Z' ended and not waited for; 'X' if there is none.
char process_state(pid_t pid, const std::filesystem::path& proc = "/proc");

}  // namespace lockstep::launcher
