#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/comm/detail/shm_buffers.h"
#include "lockstep/comm/detail/shm_rounds.h"

namespace lockstep::comm::detail {

// A collective or message that was started.
struct Operation {
  Operation(const Board& its_board, const Call& its_call)
      : board(its_board), call(its_call) {}

  void finish() noexcept { done.store(true, std::memory_order_release); }
  void fail(const std::string& why);

  const Board& board;
  const Call call;
  std::optional<Error> error;  // set before done
  std::atomic<bool> done = false;
};

// Returns the tensor that this collective works on in place, if all ranks have theirs
// in a shared buffer: the reduced one, or one gathered from slices of itself. Null if
// there is none.
const torch::Tensor* whole_of(const Call& call, int rank);

// A collective of all ranks, carried on step by step. Once it is done on one rank, all
// others can finish it without that one's help.
class Collective : public Operation {
 public:
  struct Numbered {
    std::uint64_t number;
    std::optional<BufferPlace> place;  // of the tensor, in a shared buffer
  };
  Collective(const Board& board, const Call& call, const Numbered& numbered);

  std::uint64_t number() const noexcept { return number_; }

  // Tells the other ranks. From then on the tensors are theirs to read.
  void announce();

  // Requires that all earlier ones are done, and have used the rounds before this.
  void begin(std::uint64_t first_round) noexcept { first_round_ = first_round; }
  bool has_begun() const noexcept { return first_round_ != 0; }

  // Does one step, which takes less than a millisecond and waits for no rank; returns
  // false if none can be done now.
  bool advance();

  // Returns the first round after it, once it is done.
  std::uint64_t next_round() const noexcept;

  // Returns whether the others need nothing more from this rank: the rest is not
  // urgent.
  bool is_given() const noexcept;

  // Returns the ranks that this one waits for.
  std::vector<int> missing() const;

 private:
  bool advance_rounds();
  bool advance_blocks();
  void work_on_block(std::uint64_t begin, std::uint64_t num_bytes) const;
  void work_on_slice(int owner, std::uint64_t begin, std::uint64_t num_bytes) const;
  std::vector<char*> places_at(std::uint64_t offset) const;
  void decide();
  std::string difference() const;
  bool is_in_place() const;
  void count(std::atomic<std::uint64_t> Slot::*counter, std::uint64_t value);
  std::uint64_t whole_bytes() const;
  std::uint32_t num_blocks() const;

  const std::uint64_t number_;
  const std::optional<BufferPlace> place_;
  std::unique_ptr<Rounds> rounds_;
  std::uint64_t first_round_ = 0;
  bool decided_ = false;   // all have announced
  bool in_place_ = false;  // block by block, where the tensors are
  std::uint64_t put_ = 0, combined_ = 0, taken_ = 0;  // rounds that this rank has
};

}  // namespace lockstep::comm::detail
