#pragma once

#include <vector>

#include <c10/core/Event.h>
#include <torch/torch.h>

#include "lockstep/base/clock.h"

namespace lockstep::profile::detail {

// Points in time that are read later: on a CPU the host's, on a GPU when the current
// stream reaches them; no thread waits for that.
class Moments {
 public:
  explicit Moments(const torch::Device& device) : device_(device) {}

  // Records the current time. Returns its number.
  std::size_t take();
  std::size_t take(SteadyTime now);  // on a CPU

  // Waits for the device; from then on seconds() are known.
  void settle();
  // Returns a time on the steady clock of this host.
  double seconds(std::size_t moment) const { return seconds_.at(moment); }

 private:
  c10::Event recorded() const;

  torch::Device device_;
  std::vector<c10::Event> events_;  // of a GPU
  std::vector<double> seconds_;
};

double seconds_of(SteadyTime time);

}  // namespace lockstep::profile::detail
