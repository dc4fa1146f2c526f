#pragma once

#include <cstdint>

#include "lockstep/data/dataset.h"

namespace lockstep::data {

// The finaliser of splitmix64: every bit of the input reaches every bit of the output.
// Stored data positions rely on it: it never changes.
inline std::uint64_t scramble(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

// Chance that depends on a visit only: on seed, epoch and sample, never on who asks, or
// when. The same on every platform.
class Random {
 public:
  explicit Random(std::uint64_t key) noexcept : state_(key) {}
  // `purpose` keeps two users of one visit apart.
  Random(const Visit& visit, std::uint64_t purpose) noexcept;

  std::uint64_t next() noexcept;
  double uniform() noexcept;                         // [0, 1)
  double uniform(double low, double high) noexcept;  // [low, high)
  std::int64_t below(std::int64_t count) noexcept;   // [0, count), count > 0
  double beta(double alpha) noexcept;                // Beta(alpha, alpha)

 private:
  double gamma(double alpha) noexcept;
  double normal() noexcept;

  std::uint64_t state_;
};

}  // namespace lockstep::data
