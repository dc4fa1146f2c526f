#pragma once

#include <chrono>

#include "lockstep/config/config.h"

namespace lockstep {

struct SelftestOptions {
  std::chrono::seconds repeat{0};  // go on for this long; 0: once
  bool cuda = false;
};

// Meets the other ranks of this job, by any launcher, runs every collective and shows
// the results (rank 0). Returns the exit status.
int run_selftest(const SelftestOptions& options, const config::Config& config);

}  // namespace lockstep
