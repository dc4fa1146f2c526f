#pragma once

#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/patience.h"
#include "lockstep/run/rank_environment.h"

namespace lockstep::comm {

// The place of the rendezvous: "env://" (the launcher's variables), "tcp://HOST:PORT",
// "file:///PATH" (a file that is not there yet). tcp and file take
// ?rank=R&world_size=N, else they are the environment's. Throws Fault::config for
// anything else.
struct Rendezvous {
  run::RankEnvironment environment;
  std::string file;  // of file://, else ""
};
Rendezvous parse_init(const std::string& init, run::RankEnvironment environment);

// Opens the store of a job, with a prefix that is the job's and the attempt's own. Rank
// 0 hosts it, bound to the master's address alone (to all, with a warning, where that
// is not one of this machine), unless the launcher does; the others wait until it is
// there. Throws Fault::comm when it does not come in time and Fault::io when its port
// is taken, naming the process that has it.
c10::intrusive_ptr<c10d::Store> open_store(const Rendezvous& place,
                                           const Patience& patience);

}  // namespace lockstep::comm
