#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"

namespace lockstep::comm {

// The state that a rank tells the others once a step. The bits are exchanged between
// processes of one version only.
using Flags = std::uint64_t;
inline constexpr Flags kStop = 1U << 0;         // leave after this step
inline constexpr Flags kNonFinite = 1U << 1;    // the loss or a gradient is not finite
inline constexpr Flags kOutOfTime = 1U << 2;    // the time limit has passed
inline constexpr Flags kOutOfMemory = 1U << 3;  // the step did not fit
// The flags of a checkpoint (checkpoint::Saver).
inline constexpr Flags kSave = 1U << 5;           // one is wanted after this step
inline constexpr Flags kSaveOpen = 1U << 6;       // rank 0: ranks may write
inline constexpr Flags kSaveWritten = 1U << 7;    // this rank's part
inline constexpr Flags kSavePublished = 1U << 8;  // rank 0: it is there
inline constexpr Flags kSaveFailed = 1U << 9;
inline constexpr Flags kEnough = 1U << 4;    // a callback wants no more steps
inline constexpr Flags kWeighed = 1U << 10;  // `weights` are those of the next batch

// Losses whose targets weigh; those of more are summed in a collective of their own.
inline constexpr std::size_t kMostWeights = 16;
using Weights = std::array<double, kMostWeights>;

struct Ballot {
  Flags flags = 0;
  std::int64_t value = 0;  // with kStop: the signal
  // With kWeighed: the weight of the targets of this rank's share in each loss.
  Weights weights = {};
};

// Agreement, once a step: every rank casts a ballot, and all of them read the same
// ballots of all. Decisions that change the run are taken from these alone, hence
// identically everywhere.
//
// Collective: cast() and count() in turn, by all ranks.
// Threads:    one at a time.
class Votes {
 public:
  virtual ~Votes() = default;

  // Never waits for another rank: cast while the tail of backward still runs.
  virtual void cast(const Ballot& ballot) = 0;

  // Returns the ballots by rank; waits for those that have not cast theirs. Throws
  // Fault::comm if one does not come within the timeout, or is gone.
  virtual const std::vector<Ballot>& count() = 0;

  // Returns all flags that at least one rank has set.
  static Flags any(const std::vector<Ballot>& ballots);

  // Returns the sum of the ranks' weights, in their order; empty unless all have told.
  static std::optional<Weights> sum_of_weights(const std::vector<Ballot>& ballots);
};

// Makes the votes of a single rank.
std::unique_ptr<Votes> make_own_votes();

// Makes votes over a communicator of CPU tensors that nothing else uses.
std::unique_ptr<Votes> make_votes(std::unique_ptr<Communicator> control);

// For ranks that are processes of one machine: a page of memory that they share, so
// that casting is a few stores. It has no name in any file system, so nothing is left
// behind however a rank ends.
struct SharedVotesOptions {
  int rank = 0;
  int size = 1;
  std::chrono::milliseconds timeout{600'000};
};

// Gives every rank rank 0's text, and returns when all have called it.
using Tell = std::function<std::string(const std::string&)>;

// Returns null, on every rank, if one of them can not map the memory.
std::unique_ptr<Votes> make_shared_votes(const SharedVotesOptions& options,
                                         const Tell& tell);

}  // namespace lockstep::comm
