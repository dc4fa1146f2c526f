#pragma once

#include <string>
#include <vector>

#include "lockstep/config/config.h"

namespace lockstep::config {

// Returns the keys of the knobs that are still `auto`. Those that the task decides,
// when it is built, are none of them.
std::vector<std::string> auto_keys(const Config& config);

// A config in which no knob is `auto`: the planner decides, and whoever has one of
// these obeys. It can not be changed.
class Resolved {
 public:
  // Throws Fault::config, naming the knobs, if some are `auto`.
  explicit Resolved(Config config);

  const Config& operator*() const noexcept { return config_; }
  const Config* operator->() const noexcept { return &config_; }

 private:
  Config config_;
};

}  // namespace lockstep::config
