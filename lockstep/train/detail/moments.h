#pragma once

#include <vector>

#include <c10/core/Event.h>
#include <torch/torch.h>

#include "lockstep/base/clock.h"

namespace lockstep::train::detail {

// Points in time that are read later: of a CPU the host's, of a GPU when the current
// stream comes to them, which nobody waits for.
class Moments {
 public:
  explicit Moments(const torch::Device& device) : device_(device) {}

  // Now. Its number.
  std::size_t take();
  std::size_t take(SteadyTime now);  // on a CPU

  // Waits for the device; from then on seconds() are known.
  void settle();
  // On the steady clock of this host.
  double seconds(std::size_t moment) const { return seconds_.at(moment); }

 private:
  c10::Event recorded() const;

  torch::Device device_;
  std::vector<c10::Event> events_;  // of a GPU
  std::vector<double> seconds_;
};

double seconds_of(SteadyTime time);

}  // namespace lockstep::train::detail
