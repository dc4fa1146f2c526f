#pragma once

#include <algorithm>
#include <ctime>
#include <vector>

#include "lockstep/run/rank_environment.h"

// What benchmarks share.
namespace lockstep {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

// The CPU time of all threads of this process.
inline double cpu_seconds() {
  timespec now{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// A rank of a job on this machine.
inline run::RankEnvironment environment(int rank, int ranks, int port) {
  run::RankEnvironment env;
  env.rank = env.local_rank = rank;
  env.world_size = env.local_world_size = ranks;
  env.master_address = "127.0.0.1";
  env.master_port = port;
  return env;
}

}  // namespace lockstep
