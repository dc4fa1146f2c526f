#pragma once

#include <functional>
#include <memory>
#include <string>

#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/detail/complaint.h"

namespace lockstep::comm::detail {

using Store = c10::intrusive_ptr<c10d::Store>;

// The parts that a communicator over a c10d process group is made of.
struct C10dParts {
  c10::intrusive_ptr<c10d::Backend> group;
  std::string name;
  Traits traits = {};
  torch::Device device = torch::kCPU;
  Store store;                      // for split(); keys of this group only
  bool asks_after_failure = false;  // reads the peers' calls from the store
  int rank = 0;
  int size = 1;
  bool can_average = false;  // the backend itself divides
  // A reduce_scatter is an all_reduce of which each rank keeps its part. c10d does the
  // same for gloo, behind a work that never says that it is completed or has failed.
  bool scatters_by_all_reduce = false;
  // True once a thread of the backend has thrown; may be empty.
  Complaint complaint;
  // Ends pending collectives on this rank, from any thread; never throws.
  std::function<void()> cut;
  bool cut_at_the_end = false;  // a clean end needs it, too
  // Makes the same kind of communicator for some of the ranks.
  std::function<std::unique_ptr<Communicator>(Store, int rank, int size)> remake;
};

std::unique_ptr<Communicator> make_c10d(C10dParts parts);

// Returns the first line of a library's exception: c10 appends a stack trace.
std::string first_line(const std::exception& error);

}  // namespace lockstep::comm::detail
