#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/detail/sharded_values.h"

namespace lockstep::parallel::detail {

// Gathers the parameters of units before they are used, and frees them after.
//
// All ranks gather in one agreed order: that of the uses in a forward pass, then back
// through the backward pass. A rank that skips a use, has no samples or has failed
// takes part all the same, so that nobody waits for it. Use 0 is the root's, whose
// parameters are whole for a whole pass. What the last use needs stays whole from its
// forward to its backward pass.
//
// Collective: everything but the releases and the getters.
// Threads:    one at a time: that of the forward pass, or autograd's.
class UnitGathers {
 public:
  struct Options {
    std::vector<std::string> names;                 // of the units, for errors
    std::vector<std::vector<std::size_t>> buckets;  // of each unit
    std::vector<std::size_t> unit_of_use;           // as in UnitPlan
    std::vector<std::size_t> outer_use;
    std::size_t prefetch = 1;         // uses that are gathered ahead
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

  void acquire_forward(std::size_t use);
  void release_forward(std::size_t use);
  void acquire_backward(std::size_t use);
  void release_backward(std::size_t use);

  // Takes part in what this rank has not reached, and frees everything.
  void end_pass();

  std::size_t num_units() const noexcept { return options_.buckets.size(); }
  // Returns the largest number of bytes that were whole at a time so far.
  std::int64_t peak_bytes() const noexcept { return peak_bytes_; }

 private:
  // The schedule of a pass is the same on every rank, whatever a rank makes of it.
  struct Visit {
    std::size_t use = 0;
    bool is_backward = false;
    bool gathers = false;  // else the unit is whole since an earlier visit
    bool frees = false;    // when it is over
  };
  struct UnitState {
    int holders = 0;
    bool is_whole = false;
    std::vector<comm::Pending> pending;
  };
  struct UseState {
    std::size_t forward = 0, backward = 0;  // its visits in the schedule
    bool in_backward = false;               // of this rank
  };

  void make_schedule(bool with_backward);
  void add_backward(std::size_t outer);
  std::size_t unit_of(const Visit& visit) const {
    return options_.unit_of_use[visit.use];
  }
  void come_to(std::size_t place);
  void pass_over(std::size_t place);
  void end_visit(const Visit& visit);
  void start(std::size_t unit);
  void wait(std::size_t unit);
  void free(std::size_t unit);
  void tell_done();
  [[noreturn]] void refuse_second_use(std::size_t use) const;

  ShardedValues& values_;
  const Options options_;
  std::vector<UnitState> units_;
  std::vector<UseState> uses_;
  std::vector<std::size_t> first_use_;  // of each unit
  std::vector<Visit> schedule_;
  std::size_t next_ = 0;     // the first visit that is not over
  std::size_t started_ = 0;  // visits whose gather has been started
  std::size_t undone_ = 0;   // uses from this one on have had their backward pass
  std::uint64_t pass_ = 0;
  bool open_ = false;
  bool with_backward_ = false;
  std::int64_t bytes_ = 0, peak_bytes_ = 0;
};

}  // namespace lockstep::parallel::detail
