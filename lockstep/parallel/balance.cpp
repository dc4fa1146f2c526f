#include "lockstep/parallel/balance.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lockstep/base/error.h"

namespace lockstep::parallel {

Balance::Balance(int ranks)
    : speed_(static_cast<std::size_t>(ranks)),
      weights_(static_cast<std::size_t>(ranks), kWhole / ranks) {}

std::optional<std::vector<std::int64_t>> Balance::observe(
    const std::vector<double>& seconds, const std::vector<double>& samples) {
  LOCKSTEP_CHECK(seconds.size() == speed_.size() && samples.size() == speed_.size());
  for (std::size_t r = 0; r < speed_.size(); ++r) {
    if (samples[r] <= 0 || seconds[r] <= 0) continue;
    const auto now = samples[r] / seconds[r];
    speed_[r] = speed_[r] > 0 ? (speed_[r] + now) / 2 : now;
  }
  if (std::find(speed_.begin(), speed_.end(), 0.0) != speed_.end()) return std::nullopt;
  const auto sum = std::accumulate(speed_.begin(), speed_.end(), 0.0);
  const auto least = kLeast / static_cast<double>(speed_.size());
  bool changes = false;
  std::vector<std::int64_t> weights;
  for (std::size_t r = 0; r < speed_.size(); ++r) {
    const auto share = std::max(least, speed_[r] / sum);
    weights.push_back(std::llround(share * static_cast<double>(kWhole)));
    const auto before = static_cast<double>(weights_[r]);
    changes |=
        std::abs(static_cast<double>(weights[r]) - before) > kHysteresis * before;
  }
  if (!changes) return std::nullopt;
  weights_ = weights;
  return weights;
}

}  // namespace lockstep::parallel
