#pragma once

#include <chrono>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

namespace lockstep::comm {

struct GlooOptions {
  c10::intrusive_ptr<c10d::Store> store;  // shared by the ranks
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{30'000};
};

// c10d's Gloo over the loopback interface: collectives of CPU tensors between ranks of
// this machine, processes or threads. Collective: returns when all ranks have called
// it.
c10::intrusive_ptr<c10d::Backend> make_gloo(const GlooOptions& options);

}  // namespace lockstep::comm
