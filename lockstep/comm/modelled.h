#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

struct ModelledOptions {
  int ranks = 8;
  // Sums and gathers pass as many messages one after the other as a tree is deep,
  // ceil(log2 N), and not N - 1; their bytes take the time of a ring all the same.
  bool tree = false;
  double latency_seconds = 20e-6;    // of one message
  double bytes_per_second = 12.5e9;  // of one rank's link, each way
  torch::Device device = torch::kCPU;
  // On a CPU: the time is spent computing, and stretches where others want the core, as
  // with backends whose work the CPU does. Else it passes while the thread sleeps.
  bool busy = false;
  // Lets time pass on the line; empty: as `busy` says. For tests.
  std::function<void(std::chrono::nanoseconds)> occupy;
};

// Returns the time of a collective on a network of `ranks` with nothing else on it. B
// is the larger of its two tensors in bytes, N the number of ranks:
//
//   all_reduce (ring)             2 (N - 1) latencies + 2 (N - 1) / N B / bandwidth
//   reduce_scatter, all_gather,     (N - 1) latencies +   (N - 1) / N B / bandwidth
//     all_to_all
//   broadcast (pipelined tree)   ceil(log2 N) latencies +             B / bandwidth
//   send, recv                              1 latency +               B / bandwidth
//
// With `tree` N - 1 latencies are ceil(log2 N).
double modelled_seconds(const Call& call, const ModelledOptions& options);

// Makes rank 0 of `ranks`, of which only this process exists: it shows a schedule on a
// network that is not there. Collectives occupy a line for the modelled time, one after
// the other in their order: a thread on a CPU, a stream of its own on a GPU. So they
// overlap with computing as real ones do.
//
// The other ranks contribute nothing: all_reduce, broadcast, send and recv leave their
// tensor as it is, reduce_scatter gives this rank's slice of its own, all_gather zeros
// for the others. backend() is "modelled", and so is every number that comes of it.
// split() is refused: the others' colors are unknown.
std::unique_ptr<Communicator> make_modelled(const ModelledOptions& options);

}  // namespace lockstep::comm
