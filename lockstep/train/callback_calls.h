#pragma once

#include <algorithm>
#include <functional>

#include "lockstep/train/callbacks.h"
#include "lockstep/train/run_state.h"

namespace lockstep::train {

// Calls the callbacks of a run at its boundaries.
//
// Lifetime: everything that it is given outlives it.
class CallbackCalls {
 public:
  struct Parts {
    const CallbackList& callbacks;
    const config::Config& config;
    models::Model& model;
    parallel::Strategy& strategy;
    comm::World& world;
    const RunState& state;              // the run's position
    std::function<void()> before = {};  // each boundary: callbacks may change weights
  };
  explicit CallbackCalls(Parts parts) : parts_(std::move(parts)) {}

  // Calls on(callback, context) for each of them.
  template <typename On>
  void call(const On& on) const {
    if (parts_.callbacks.empty()) return;
    parts_.before();
    const RunContext context{parts_.config, parts_.model,       parts_.strategy,
                             parts_.world,  parts_.state.steps, parts_.state.epoch};
    for (const auto& one : parts_.callbacks) on(*one, context);
  }

  bool empty() const noexcept { return parts_.callbacks.empty(); }
  bool watch_passes() const {
    return any([](const Callback& one) { return one.watches_passes(); });
  }
  bool watch_skips() const {
    return any([](const Callback& one) { return one.watches_skips(); });
  }
  bool should_stop() const {
    return any([](const Callback& one) { return one.should_stop(); });
  }

 private:
  template <typename Is>
  bool any(const Is& is) const {
    return std::any_of(parts_.callbacks.begin(), parts_.callbacks.end(),
                       [&](const auto& one) { return is(*one); });
  }

  Parts parts_;
};

}  // namespace lockstep::train
