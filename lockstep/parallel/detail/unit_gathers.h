#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/detail/sharded_values.h"

namespace lockstep::parallel::detail {

// Gathers the parameters of units before they are used, and frees them after.
//
// All ranks gather in one agreed order: the units as they follow each other in a
// forward pass, then back through the backward pass. A rank that skips a unit, has no
// samples or has failed takes part all the same, so that nobody waits for it. Unit 0 is
// the root: parameters that belong to no other unit, which are whole for a whole pass.
// The last unit stays whole from its forward to its backward pass.
//
// Collective: everything but release_forward() and the getters.
// Threads:    one at a time: that of the forward pass, or autograd's.
class UnitGathers {
 public:
  struct Options {
    std::vector<std::string> names;                 // of the units, for errors
    std::vector<std::vector<std::size_t>> buckets;  // of each unit
    std::size_t prefetch = 1;         // units that are gathered ahead of their use
    bool frees_after_forward = true;  // false: a unit stays whole until its backward
    // Called when no more gradients of a unit will come in this pass, in the order of
    // the backward pass, also for units that were skipped; not for the root.
    std::function<void(std::size_t unit)> on_backward_done;
  };
  UnitGathers(ShardedValues& values, Options options);

  // Begins a pass: the root becomes whole.
  void begin_pass(bool with_backward);
  bool is_open() const noexcept { return open_; }
  std::uint64_t pass() const noexcept { return pass_; }  // counts them

  void acquire_forward(std::size_t unit);
  void release_forward(std::size_t unit);
  void acquire_backward(std::size_t unit);
  void release_backward(std::size_t unit);

  // Takes part in what this rank has not reached, and frees everything.
  void end_pass();

  // Makes all units whole outside of a pass, or frees them.
  void gather_all();
  void free_all();

  std::size_t num_units() const noexcept { return options_.buckets.size(); }
  // Returns the largest number of bytes that were whole at a time so far.
  std::int64_t peak_bytes() const noexcept { return peak_bytes_; }

 private:
  enum class Direction { forward, backward };
  struct Visit {
    std::size_t unit = 0;
    Direction direction = Direction::forward;
  };
  struct UnitState {
    int holders = 0;
    bool is_whole = false;
    std::vector<comm::Pending> pending;
  };

  void make_schedule(bool with_backward);
  std::optional<std::size_t> find(const Visit& visit) const;
  void come_to(std::size_t place);
  void start(std::size_t unit);
  void wait(std::size_t unit);
  void free(std::size_t unit);
  void hold(std::size_t unit);
  void pass_over(std::size_t place);
  void backward_is_done(std::size_t unit);
  bool keeps(std::size_t unit) const;
  [[noreturn]] void refuse_second_use(std::size_t unit) const;

  ShardedValues& values_;
  const Options options_;
  std::vector<UnitState> units_;
  std::vector<Visit> schedule_;
  std::size_t next_ = 0;     // the first visit that is not over
  std::size_t started_ = 0;  // visits whose gather has been started
  std::size_t left_ = 0;     // units above this one have had their backward pass
  std::uint64_t pass_ = 0;
  bool open_ = false;
  bool with_backward_ = false;
  std::int64_t bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace lockstep::parallel::detail
