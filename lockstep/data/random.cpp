#include "lockstep/data/random.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace lockstep::data {
namespace {

constexpr std::uint64_t kStep = 0x9E3779B97F4A7C15ULL;

}  // namespace

Random::Random(const Visit& visit, std::uint64_t purpose) noexcept
    : state_(scramble(visit.seed) ^ purpose) {
  state_ = scramble(state_) ^ static_cast<std::uint64_t>(visit.epoch);
  state_ = scramble(state_) ^ static_cast<std::uint64_t>(visit.draw);
  state_ = scramble(state_);
}

std::uint64_t Random::next() noexcept {
  state_ += kStep;
  return scramble(state_);
}

double Random::uniform() noexcept {
  return static_cast<double>(next() >> 11) * 0x1p-53;
}

double Random::uniform(double low, double high) noexcept {
  return low + (high - low) * uniform();
}

std::int64_t Random::below(std::int64_t count) noexcept {
  // The counts are far below 2^53: rounding biases no value by more than 2^-30.
  const auto value = static_cast<std::int64_t>(uniform() * static_cast<double>(count));
  return std::min(value, count - 1);
}

double Random::normal() noexcept {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Marsaglia and Tsang's method, which needs alpha >= 1; below that a sample of
// alpha + 1 is scaled down.
double Random::gamma(double alpha) noexcept {
  if (alpha < 1) {
    const double scale = std::pow(1 - uniform(), 1 / alpha);
    return gamma(alpha + 1) * scale;
  }
  const double d = alpha - 1.0 / 3;
  const double c = 1 / std::sqrt(9 * d);
  while (true) {
    const double x = normal();
    const double v = std::pow(1 + c * x, 3);
    if (v <= 0) continue;
    if (std::log(1 - uniform()) < 0.5 * x * x + d - d * v + d * std::log(v)) {
      return d * v;
    }
  }
}

double Random::beta(double alpha) noexcept {
  const double a = gamma(alpha);
  const double b = gamma(alpha);
  // Both may underflow for a tiny alpha, where the answer is 0 or 1.
  return a + b > 0 ? a / (a + b) : static_cast<double>(next() & 1);
}

}  // namespace lockstep::data
