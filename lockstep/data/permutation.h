#pragma once

#include <array>
#include <cstdint>

namespace lockstep::data {

// The order in which an epoch visits n samples: a keyed bijection of [0, n), computed
// one element at a time. It needs no memory, and seed, epoch and n alone decide it, on
// every platform and at every number of ranks. Stored data positions rely on it: it
// never changes.
class Permutation {
 public:
  Permutation(std::uint64_t n, std::uint64_t seed, std::uint64_t epoch) noexcept;

  // Returns the sample at `position`, which is in [0, n).
  std::uint64_t operator()(std::uint64_t position) const noexcept;

 private:
  static constexpr int kRounds = 6;

  std::uint64_t n_;
  int half_bits_;  // of the two halves that the Feistel network exchanges
  std::array<std::uint64_t, kRounds> keys_;
};

}  // namespace lockstep::data
