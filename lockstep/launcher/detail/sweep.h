#pragma once

#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace lockstep::launcher {

// The variable by which every process of a job is known, its own and those that its
// ranks started: an environment is inherited through fork, exec and setsid. A job
// inside a job has both marks in it, so the outer one finds all.
inline constexpr std::string_view kJobVariable = "LOCKSTEP_JOB";

// Returns a mark that no other job has: 32 hexadecimal digits.
std::string make_mark();

// Returns the value of kJobVariable for the ranks of a new job: its mark, behind that
// of the job that this process itself belongs to.
std::string job_variable(std::string_view mark);

// Returns the living processes that have the mark in their environment, this one left
// out. Those of other users can not be seen.
std::vector<pid_t> processes_with(std::string_view mark);

// Kills all of them, and those that they start meanwhile. Returns true when none is
// left; false after `tries` rounds of 10 ms.
//
// Makes system calls only, so that it may be called between fork and exec.
bool sweep(std::string_view mark, int tries = 150) noexcept;

}  // namespace lockstep::launcher
