#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm::detail {

// What a rank asks for, in words that are the same on every rank that asks for the
// same. The shapes of tensors that may differ between ranks are left out.
std::string signature(const Call& call);

// What one rank asked for, and where.
struct Asked {
  std::string signature;
  std::string place;
};

// An error's text.
std::string difference(int rank, const Asked& asked, int other,
                       const Asked& others_asked);

// "" if all ranks ask for the same; else an error's text with the first two that do
// not, and where each of them asked.
std::string first_difference(const std::vector<Asked>& by_rank);
std::string first_difference(const std::vector<Call>& by_rank);

}  // namespace lockstep::comm::detail
