#pragma once

#include <functional>
#include <string>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/detail/difference.h"

// Ranks whose collective has failed leave it in the store: where they asked for
// different things, each of them can say so.
namespace lockstep::comm::detail {

// The ranks of a group and their store.
struct FailureBoard {
  c10::intrusive_ptr<c10d::Store> store;
  int rank = 0, size = 1;
};

struct FailureFound {
  bool is_first = false;  // the others may not know of it yet: they are waited for
  std::function<void()> when_told;  // after the others can read of it, where is_first
};

// Tells the others of this rank's call and describes the first that differs from it; ""
// where none is known. Ends in time, also where the store is out of reach.
std::string difference_from_peers(const FailureBoard& board, const Asked& own,
                                  const FailureFound& found);

}  // namespace lockstep::comm::detail
