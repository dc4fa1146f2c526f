#pragma once

#include <memory>

#include "lockstep/comm/detail/shm_board.h"

namespace lockstep::comm::detail {

// The place of the chunks of one round.
struct Round {
  const Board& board;
  std::uint64_t index;   // in its collective, from 0 on
  std::uint64_t number;  // of all rounds

  char* chunk(int rank) const { return board.chunk(rank, number); }
  char* own() const { return chunk(board.rank()); }
};

// The schedule of one kind of collective through the chunks, round by round: every rank
// puts something into its own chunk, and when all have, takes what it needs from the
// others. Those that combine() do so in between: each its slice, which all then take.
class Rounds {
 public:
  virtual ~Rounds() = default;

  // Returns at least 1, and the same on every rank.
  virtual std::uint64_t count() const = 0;
  // Returns whether count() needs the announcements of all ranks.
  virtual bool needs_announcements() const { return false; }
  virtual void put(const Round& round) = 0;
  virtual bool combines() const { return false; }
  virtual void combine(const Round&) {}
  virtual void take(const Round& round) = 0;
};

// `collective` is its number.
std::unique_ptr<Rounds> make_rounds(const Board& board, const Call& call,
                                    std::uint64_t collective);

}  // namespace lockstep::comm::detail
