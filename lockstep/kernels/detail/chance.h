#pragma once

#include <cstdint>

// The random numbers of dropout, once for host and device.
namespace lockstep::kernels::detail {

// Every bit of the input reaches every bit of the output (constants found by search:
// the "lowbias32" of C. Wellons' hash prospector).
[[gnu::always_inline]] constexpr std::uint32_t mixed(std::uint32_t x) {
  x ^= x >> 16;
  x *= 0x7FEB352DU;
  x ^= x >> 15;
  x *= 0x846CA68BU;
  return x ^ (x >> 16);
}

struct SampleKey {
  std::uint32_t low, high;
};

constexpr SampleKey key_of(std::uint64_t key, std::int64_t sample) {
  const auto number = static_cast<std::uint64_t>(sample);
  const auto low = mixed(static_cast<std::uint32_t>(key) ^
                         mixed(static_cast<std::uint32_t>(number)));
  const auto high =
      mixed(static_cast<std::uint32_t>(key >> 32) ^
            mixed(static_cast<std::uint32_t>(number >> 32) + 0x9E3779B9U));
  return {low, mixed(high ^ low)};
}

// Returns a number that is uniform over 32 bits.
[[gnu::always_inline]] constexpr std::uint32_t chance(const SampleKey& key,
                                                      std::uint32_t element) {
  return mixed(mixed(element ^ key.low) + key.high);
}

}  // namespace lockstep::kernels::detail
