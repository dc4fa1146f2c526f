#pragma once

#include <algorithm>
#include <vector>

#include "lockstep/run/rank_environment.h"

// What benchmarks of several ranks share.
namespace lockstep {

inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
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
