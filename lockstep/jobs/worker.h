#pragma once

#include <filesystem>

#include "lockstep/config/config.h"
#include "lockstep/jobs/caller.h"

namespace lockstep::jobs {

// Returns the program of a rank, beside the caller's; Fault::hardware if it is not
// there.
std::filesystem::path find_worker(const Caller& caller);

// Returns how many processes are started for the ranks: with data_parallel they are
// threads of one.
int processes(const config::ParallelConfig& parallel);

}  // namespace lockstep::jobs
