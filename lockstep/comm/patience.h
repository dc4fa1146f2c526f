#pragma once

#include <chrono>
#include <functional>

#include "lockstep/base/error.h"

namespace lockstep::comm {

// The time that ranks wait for each other at the start, and a check whether to stop
// waiting.
class Patience {
 public:
  using Clock = std::chrono::steady_clock;

  // Implicit: a limit alone is the usual case.
  Patience(std::chrono::milliseconds limit,  // NOLINT(google-explicit-constructor)
           std::function<bool()> interrupted = {})
      : limit_(limit),
        deadline_(Clock::now() + limit),
        interrupted_(std::move(interrupted)) {}

  std::chrono::milliseconds limit() const noexcept { return limit_; }
  bool is_over() const noexcept { return Clock::now() >= deadline_; }

  // Throws Fault::comm if this process was asked to stop.
  void check() const {
    if (interrupted_ && interrupted_()) {
      throw Error(Fault::comm,
                  "comm: this rank was told to stop while it waited for the others");
    }
  }

 private:
  std::chrono::milliseconds limit_;
  Clock::time_point deadline_;
  std::function<bool()> interrupted_;
};

}  // namespace lockstep::comm
