#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace lockstep::parallel {

// Shares of the batch for ranks of unequal speed: in proportion to the samples that
// each of them computes in a second. Pure: ranks that observe the same numbers come to
// the same shares, so they need only agree on what they measured.
class Balance {
 public:
  static constexpr std::int64_t kWhole = 1 << 16;  // the weights add up to about this
  // Shares change only if one of them would by more than this: measurements are noisy.
  static constexpr double kHysteresis = 0.05;
  // The part of an equal share that the slowest rank keeps, to be measured again.
  static constexpr double kLeast = 0.1;

  explicit Balance(int ranks);

  // Takes a window of steps: the seconds that each rank computed, and for how many
  // samples. Returns new weights, if the shares should change.
  std::optional<std::vector<std::int64_t>> observe(const std::vector<double>& seconds,
                                                   const std::vector<double>& samples);

  const std::vector<std::int64_t>& weights() const noexcept { return weights_; }

 private:
  std::vector<double> speed_;  // samples in a second; 0: not measured yet
  std::vector<std::int64_t> weights_;
};

}  // namespace lockstep::parallel
