#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "lockstep/cli/detail/checkpoint.h"

namespace lockstep::cli {
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

// Numbers whose bytes are the same are equal, NaN included.
void add(std::span<const std::byte> a, std::span<const std::byte> b,
         const std::string& dtype, std::int64_t count, TensorDifference& result,
         double& scale) {
  std::vector<double> of_a(static_cast<std::size_t>(count)), of_b(of_a.size());
  const bool numbers = to_numbers(dtype, a, of_a) && to_numbers(dtype, b, of_b);
  const auto width = a.size() / of_a.size();
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (std::size_t i = 0; i < of_a.size(); ++i) {
    if (numbers && std::isfinite(of_a[i])) scale = std::max(scale, std::abs(of_a[i]));
    if (std::memcmp(a.data() + i * width, b.data() + i * width, width) == 0) continue;
    ++result.elements;
    const double one = numbers ? std::abs(of_a[i] - of_b[i]) : kInfinity;
    result.absolute = std::max(result.absolute, std::isnan(one) ? kInfinity : one);
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

std::int64_t chunk_elements(const storage::TensorRecord& tensor, bool reorders) {
  constexpr std::int64_t kElements = 1 << 20;
  return reorders ? std::max<std::int64_t>(1, tensor.num_elements()) : kElements;
}

TensorDifference tensor_difference(const storage::Reader& a, const storage::Reader& b,
                                   const std::string& name) {
  const auto& tensor = a.tensor(name);
  const bool reorders = tensor.order != b.tensor(name).order;
  const auto step = chunk_elements(tensor, reorders);
  TensorDifference result;
  double scale = 0;
  std::vector<std::byte> of_a, of_b;
  for (std::int64_t at = 0; at < tensor.num_elements(); at += step) {
    const auto count = std::min(step, tensor.num_elements() - at);
    const auto bytes =
        static_cast<std::size_t>(storage::num_bytes(tensor.dtype, count).value_or(0));
    of_a.resize(bytes);
    of_b.resize(bytes);
    a.read(name, {at, count, tensor.order}, of_a);
    b.read(name, {at, count, tensor.order}, of_b);
    add(of_a, of_b, tensor.dtype, count, result, scale);
  }
  if (result.absolute > 0) {
    result.relative = scale > 0 && std::isfinite(result.absolute)
                          ? result.absolute / scale
                          : std::numeric_limits<double>::infinity();
  }
  return result;
}

}  // namespace lockstep::cli
