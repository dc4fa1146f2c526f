#include "lockstep/storage/numbers.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>

namespace lockstep::storage {
namespace {

template <typename T>
void widen(std::span<const std::byte> bytes, std::vector<double>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    T value;
    std::memcpy(&value, bytes.data() + i * sizeof(T), sizeof(T));
    numbers[i] = static_cast<double>(value);
  }
}

double from_bfloat(std::uint16_t bits) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
}

double from_half(std::uint16_t bits) {
  const int exponent = bits >> 10 & 0x1F;
  const double mantissa = bits & 0x3FF;
  double value = 0;
  if (exponent == 0) {
    value = std::ldexp(mantissa, -24);
  } else if (exponent == 31) {
    value = mantissa == 0 ? std::numeric_limits<double>::infinity()
                          : std::numeric_limits<double>::quiet_NaN();
  } else {
    value = std::ldexp(mantissa + 1024, exponent - 25);
  }
  return (bits & 0x8000) != 0 ? -value : value;
}

void widen_16(std::span<const std::byte> bytes, double (*convert)(std::uint16_t),
              std::vector<double>& numbers) {
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    std::uint16_t bits = 0;
    std::memcpy(&bits, bytes.data() + i * sizeof bits, sizeof bits);
    numbers[i] = convert(bits);
  }
}

}  // namespace

bool to_numbers(const std::string& dtype, std::span<const std::byte> bytes,
                std::vector<double>& numbers) {
  if (dtype == "F32") return widen<float>(bytes, numbers), true;
  if (dtype == "F64") return widen<double>(bytes, numbers), true;
  if (dtype == "I64") return widen<std::int64_t>(bytes, numbers), true;
  if (dtype == "U64") return widen<std::uint64_t>(bytes, numbers), true;
  if (dtype == "I32") return widen<std::int32_t>(bytes, numbers), true;
  if (dtype == "U32") return widen<std::uint32_t>(bytes, numbers), true;
  if (dtype == "I16") return widen<std::int16_t>(bytes, numbers), true;
  if (dtype == "U16") return widen<std::uint16_t>(bytes, numbers), true;
  if (dtype == "I8") return widen<std::int8_t>(bytes, numbers), true;
  if (dtype == "U8" || dtype == "BOOL")
    return widen<std::uint8_t>(bytes, numbers), true;
  if (dtype == "BF16") return widen_16(bytes, from_bfloat, numbers), true;
  if (dtype == "F16") return widen_16(bytes, from_half, numbers), true;
  return false;
}

}  // namespace lockstep::storage
