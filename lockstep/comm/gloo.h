#pragma once

#include <chrono>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

struct GroupOptions {
  c10::intrusive_ptr<c10d::Store> store;  // keys of this group only
  int rank = 0;
  int size = 1;
  torch::Device device = torch::kCPU;
  // Applies to collectives, and to the rendezvous itself.
  std::chrono::milliseconds timeout{600'000};
  // For gloo: the address or the interface that connections use.
  std::string interface = "127.0.0.1";
};

// Makes c10d's Gloo: collectives of CPU tensors between processes or threads, on one
// machine or several. Collective: returns when all ranks have called it. A process that
// has left SIGPIPE at its default ignores it from here on: a peer that dies would end
// it.
std::unique_ptr<Communicator> make_gloo(const GroupOptions& options);

// Makes c10d's group itself, without our layer, for the benchmark of that layer.
// Collective.
c10::intrusive_ptr<c10d::Backend> make_gloo_group(const GroupOptions& options);

}  // namespace lockstep::comm
