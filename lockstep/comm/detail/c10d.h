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

// What a communicator over one of c10d's process groups is made of.
struct C10dParts {
  c10::intrusive_ptr<c10d::Backend> group;
  std::string name;
  Traits traits = {};
  torch::Device device = torch::kCPU;
  Store store;                      // for split(); keys of this group only
  bool asks_after_failure = false;  // the store: what did the others ask for?
  int rank = 0;
  int size = 1;
  bool can_average = false;  // the backend itself divides
  // What the backend's own threads have thrown; may be empty.
  Complaint complaint;
  // Breaks what is under way on this rank, from any thread; never throws.
  std::function<void()> cut;
  bool cut_at_the_end = false;  // a clean end needs it, too
  // The same kind of communicator for some of the ranks.
  std::function<std::unique_ptr<Communicator>(Store, int rank, int size)> remake;
};

std::unique_ptr<Communicator> make_c10d(C10dParts parts);

// The first line of what a library threw: c10 appends a stack trace.
std::string first_line(const std::exception& error);

}  // namespace lockstep::comm::detail
