#pragma once

#include <cmath>
#include <cstdint>

namespace lockstep {

// An exponential moving average that is exact from the first value on: the bias of its
// start at 0 is corrected.
class Smoothed {
 public:
  explicit Smoothed(double keep) : keep_(keep) {}

  // The whole state, for a checkpoint.
  struct State {
    double sum = 0;
    std::int64_t count = 0;
  };
  State state() const { return {sum_, count_}; }
  void load(const State& state) {
    sum_ = state.sum;
    count_ = state.count;
  }

  // Adds a value and returns the new mean.
  double add(double value) {
    sum_ = keep_ * sum_ + (1 - keep_) * value;
    count_ += 1;
    return sum_ / (1 - std::pow(keep_, static_cast<double>(count_)));
  }

 private:
  double keep_;
  double sum_ = 0;
  std::int64_t count_ = 0;
};

// Applies to the loss of a step or a report.
inline constexpr double kKeepOfLoss = 0.98;

}  // namespace lockstep
