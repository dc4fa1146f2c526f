#pragma once

#include <cstdint>

// Numbers of 16 bits, once for host and device: constexpr functions may be called from
// both; C++17, the version that nvcc gets. They are integers and floats only, so that
// every machine rounds alike and vectors of any width do. The sources that include this
// are built without contraction into fused multiply-adds.
namespace lockstep::kernels::detail {

// The upper half of a float.
struct Bf16 {
  std::uint16_t bits;
};

// IEEE's: 5 bits of exponent, 10 of mantissa.
struct F16 {
  std::uint16_t bits;
};

[[gnu::always_inline]] constexpr float widened(float value) {
  return value;
}
[[gnu::always_inline]] constexpr double widened(double value) {
  return value;
}
[[gnu::always_inline]] constexpr float widened(Bf16 value) {
  return __builtin_bit_cast(float, static_cast<std::uint32_t>(value.bits) << 16);
}

// A product shifts the exponent from one bias to the other; infinities and NaNs stay. A
// number below the least normal one is a count of 2^-24: as the mantissa of 0.5 it is
// 0.5 too large.
[[gnu::always_inline]] constexpr float widened(F16 value) {
  const std::uint32_t word = static_cast<std::uint32_t>(value.bits) << 16;
  const std::uint32_t sign = word & 0x80000000U;
  const std::uint32_t rest = word + word;
  const float normal =
      __builtin_bit_cast(float, (rest >> 4) + (0xE0U << 23)) * 0x1p-112F;
  const float small = __builtin_bit_cast(float, (rest >> 17) | (126U << 23)) - 0.5F;
  const std::uint32_t bits = rest < (1U << 27)
                                 ? __builtin_bit_cast(std::uint32_t, small)
                                 : __builtin_bit_cast(std::uint32_t, normal);
  return __builtin_bit_cast(float, sign | bits);
}

// Rounds to the nearest, ties to even.
template <typename To>
constexpr To rounded(float value);

template <>
[[gnu::always_inline]] constexpr Bf16 rounded<Bf16>(float value) {
  const auto bits = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t nearest = (bits + 0x7FFFU + ((bits >> 16) & 1U)) >> 16;
  return {static_cast<std::uint16_t>(value != value ? 0x7FC0U : nearest)};
}

// Adding a power of two of the right size leaves the bits that fit, rounded by the
// addition itself; two products make what is too large infinite first.
template <>
[[gnu::always_inline]] constexpr F16 rounded<F16>(float value) {
  const auto word = __builtin_bit_cast(std::uint32_t, value);
  const std::uint32_t rest = word + word;
  const float size = __builtin_bit_cast(float, rest >> 1);
  const std::uint32_t exponent = rest & 0xFF000000U;
  const std::uint32_t least = exponent < 0x71000000U ? 0x71000000U : exponent;
  const float power = __builtin_bit_cast(float, (least >> 1) + 0x07800000U);
  const auto bits =
      __builtin_bit_cast(std::uint32_t, power + size * 0x1p+112F * 0x1p-110F);
  const std::uint32_t nearest = ((bits >> 13) & 0x7C00U) + (bits & 0xFFFU);
  const std::uint32_t sign = (word >> 16) & 0x8000U;
  return {static_cast<std::uint16_t>(sign | (rest > 0xFF000000U ? 0x7E00U : nearest))};
}

}  // namespace lockstep::kernels::detail
