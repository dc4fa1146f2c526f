#include "lockstep/data/permutation.h"

#include <bit>

namespace lockstep::data {
namespace {

// The finaliser of splitmix64: every input bit reaches every output bit.
std::uint64_t mix(std::uint64_t x) noexcept {
  x += 0x9E3779B97F4A7C15ULL;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ULL;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBULL;
  return x ^ (x >> 31);
}

}  // namespace

Permutation::Permutation(std::uint64_t n, std::uint64_t seed,
                         std::uint64_t epoch) noexcept
    : n_(n),
      half_bits_(static_cast<int>(std::bit_width(n > 1 ? n - 1 : 1) + 1) / 2),
      keys_{} {
  std::uint64_t state = mix(mix(seed) ^ epoch);
  for (auto& key : keys_) key = state = mix(state);
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
      const std::uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    x = (left << half_bits_) | right;
  } while (x >= n_);
  return x;
}

}  // namespace lockstep::data
