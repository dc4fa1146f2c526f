#pragma once

#include <vector>

#include <torch/csrc/distributed/c10d/Store.hpp>

#include "lockstep/comm/patience.h"
#include "lockstep/comm/wire.h"
#include "lockstep/run/rank_environment.h"

namespace lockstep::comm {

// The store went away while the ranks met.
class StoreLost : public Error {
 public:
  using Error::Error;
};

// The ranks find each other through the store and compare the facts that must be the
// same. On a difference, or when a rank comes twice or not at all, every rank that is
// there throws the same error: it names the ranks, what differs and both values
// (Fault::config), or the ranks and nodes that are missing after a time (Fault::comm).
// Throws StoreLost when the store ends meanwhile.
//
// Collective.
struct MeetOptions {
  std::vector<wire::Fact> facts;
  Patience patience{std::chrono::milliseconds(0)};
  std::int64_t instance = 0;  // random; the same when a rank tries again
};
wire::Verdict meet(c10d::Store& store, const run::RankEnvironment& environment,
                   const MeetOptions& options);

}  // namespace lockstep::comm
