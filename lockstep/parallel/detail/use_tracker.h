#pragma once

#include <cstddef>
#include <vector>

#include "lockstep/comm/communicator.h"
#include "lockstep/parallel/detail/exchange.h"
#include "lockstep/parallel/layout.h"

namespace lockstep::parallel::detail {

// Keeps which parameters take part in the backward passes of a step, on this rank and,
// by the counts that travel with the gradients, on all of them. A parameter that a rank
// has not used is an error that names it, unless find_unused_parameters is set.
class UseTracker {
 public:
  struct Options {
    bool find_unused = false;
    bool static_graph = false;  // the same ones in every step: asked in the first only
  };
  // Lifetime: both outlive it. `cpu` is used for the text of an error.
  UseTracker(const std::vector<Parameter>& parameters, comm::Communicator& cpu,
             const Options& options);

  // These track the use on this rank, since reset().
  void reset();
  void set(std::size_t parameter) { used_[parameter] = 1; }
  void clear(std::size_t parameter) { used_[parameter] = 0; }
  bool is_used(std::size_t parameter) const { return used_[parameter] != 0; }
  bool none() const;
  const Flags& used() const noexcept { return used_; }

  // Returns whether ranks tell each other what they use.
  bool asks() const { return !captured_ && !(options_.static_graph && checked_); }

  // Call it after a pass. With `excused` this rank's own use says nothing. Throws
  // Fault::config, on every rank, for unused parameters. Collective where it throws.
  void check(Exchange& exchange, bool excused);

  // Returns those that no rank has used in the last step that was checked.
  const std::vector<std::size_t>& globally_unused() const { return globally_unused_; }

  // While a CUDA graph captures a pass, ranks do not ask each other: captured_unused()
  // is what this rank has not used.
  void set_captured(bool captured) noexcept { captured_ = captured; }
  const std::vector<std::size_t>& captured_unused() const { return captured_unused_; }

 private:
  const std::vector<Parameter>& parameters_;
  comm::Communicator& cpu_;
  const Options options_;
  Flags used_;
  Flags told_;  // of a pass whose counts have not come yet
  Flags now_told_;
  bool checked_ = false;  // a first pass has shown what is used
  bool captured_ = false;
  std::vector<std::size_t> globally_unused_;
  std::vector<std::size_t> captured_unused_;
};

}  // namespace lockstep::parallel::detail
