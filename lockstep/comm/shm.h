#pragma once

#include <chrono>
#include <memory>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/votes.h"

namespace lockstep::comm {

struct ShmOptions {
  int rank = 0;
  int size = 1;
  // Applies to collectives.
  std::chrono::milliseconds timeout{600'000};
};

// Makes a communicator for CPU tensors of processes on one machine, through shared
// memory.
//
// Sums are taken in the order of the ranks, whatever the length: the same bits in every
// run, and the same as `local` has. Tensors of empty_buffer() are reduced where they
// are, by the ranks that have time; all others pass through a part of the shared
// memory, chunk by chunk. A thread of this rank advances collectives while the caller
// computes; it sleeps when there is nothing to do.
//
// Ranks that call different collectives all get Fault::config. A rank that ends, gives
// up or does not come is named in the Fault::comm of all others.
//
// Rank 0 makes the memory and all ranks map it; it has no name, so nothing is left
// behind however a rank ends. When that fails on one of them all throw Fault::io.
// Collective.
std::unique_ptr<Communicator> make_shm(const ShmOptions& options, const Tell& tell);

}  // namespace lockstep::comm
