#include <array>

#include "lockstep/storage/layout.h"

namespace lockstep::storage {
namespace {

struct Row {
  std::string_view name;
  std::int64_t bits;
};

constexpr std::array kDtypes = {
    Row{"BOOL", 8},    Row{"U8", 8},      Row{"I8", 8},          Row{"F8_E5M2", 8},
    Row{"F8_E4M3", 8}, Row{"F8_E8M0", 8}, Row{"F8_E4M3FNUZ", 8}, Row{"F8_E5M2FNUZ", 8},
    Row{"I16", 16},    Row{"U16", 16},    Row{"F16", 16},        Row{"BF16", 16},
    Row{"I32", 32},    Row{"U32", 32},    Row{"F32", 32},        Row{"C64", 64},
    Row{"F64", 64},    Row{"I64", 64},    Row{"U64", 64},        Row{"F4", 4},
    Row{"F6_E2M3", 6}, Row{"F6_E3M2", 6},
};

}  // namespace

std::optional<std::int64_t> bits_of(std::string_view dtype) {
  for (const auto& row : kDtypes) {
    if (row.name == dtype) return row.bits;
  }
  return std::nullopt;
}

std::optional<std::int64_t> num_elements(const Shape& shape) {
  std::int64_t product = 1;
  for (const auto size : shape) {
    if (size < 0 || __builtin_mul_overflow(product, size, &product)) {
      return std::nullopt;
    }
  }
  return product;
}

std::optional<std::int64_t> num_bytes(std::string_view dtype, std::int64_t count) {
  const auto bits = bits_of(dtype);
  std::int64_t product = 0;
  if (!bits || count < 0 || __builtin_mul_overflow(count, *bits, &product) ||
      product % 8 != 0) {
    return std::nullopt;
  }
  return product / 8;
}

}  // namespace lockstep::storage
