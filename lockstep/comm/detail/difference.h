#pragma once

#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm::detail {

// Returns a rank's call in words that are the same on every rank with the same call.
// The shapes of tensors that may differ between ranks are left out.
std::string signature(const Call& call);

// The call of one rank, and its call site.
struct Asked {
  std::string signature;
  std::string place;
};

struct AskedBy {
  int rank;
  const Asked& asked;
};

// Returns an error's text.
std::string difference(const AskedBy& a, const AskedBy& b);

// Returns "" if all ranks make the same call; else an error's text with the first two
// that do not, and their call sites.
std::string first_difference(const std::vector<Asked>& by_rank);
std::string first_difference(const std::vector<Call>& by_rank);

}  // namespace lockstep::comm::detail
