#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/comm/votes.h"

namespace lockstep::comm {

// The result of one collective, over all dtypes, on all ranks.
struct SelftestRow {
  std::string collective;  // "all_reduce sum"
  int checks = 0;          // tensors compared on each rank
  std::string problem;     // "" if every rank had the right values; else the first
};

// Runs every collective with every dtype on tensors whose result is known, compares
// them to the last bit, and agrees on the outcome: the same rows on every rank.
//
// Collective.
std::vector<SelftestRow> selftest(Communicator& communicator, Communicator& cpu,
                                  Votes& votes);

}  // namespace lockstep::comm
