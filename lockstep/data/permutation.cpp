#include "lockstep/data/permutation.h"

#include <bit>

#include "lockstep/data/random.h"

namespace lockstep::data {

Permutation::Permutation(std::uint64_t n, std::uint64_t seed,
                         std::uint64_t epoch) noexcept
    : n_(n),
      half_bits_(static_cast<int>(std::bit_width(n > 1 ? n - 1 : 1) + 1) / 2),
      keys_{} {
  std::uint64_t state = scramble(scramble(seed) ^ epoch);
  for (auto& key : keys_) key = state = scramble(state);
}

std::uint64_t Permutation::operator()(std::uint64_t position) const noexcept {
  const std::uint64_t mask = (std::uint64_t{1} << half_bits_) - 1;
  std::uint64_t x = position;
  // The network permutes [0, 4^half_bits), at most four times n: walk its cycle until
  // it comes back into [0, n).
  do {
    std::uint64_t left = x >> half_bits_;
    std::uint64_t right = x & mask;
    for (const auto key : keys_) {
      const std::uint64_t next = left ^ (scramble(right ^ key) & mask);
      left = right;
      right = next;
    }
    x = (left << half_bits_) | right;
  } while (x >= n_);
  return x;
}

}  // namespace lockstep::data
