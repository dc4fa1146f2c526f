#pragma once

#include <cstdint>

#include "lockstep/base/hash.h"
#include "lockstep/data/dataset.h"

namespace lockstep::data {

// A random generator that depends on a visit only: on seed, epoch and sample, never on
// thread or time. The same on every platform.
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
