#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include <torch/torch.h>

namespace lockstep::data::detail {

// Calls `act` with a null pointer to the C++ type of `dtype`: for code that is the same
// for all of them. Does nothing for types that samples do not have.
template <typename Act>
void with_type(torch::Dtype dtype, const Act& act) {
  switch (dtype) {
    case torch::kFloat32:
      return act(static_cast<const float*>(nullptr));
    case torch::kFloat64:
      return act(static_cast<const double*>(nullptr));
    case torch::kFloat16:
      return act(static_cast<const c10::Half*>(nullptr));
    case torch::kBFloat16:
      return act(static_cast<const c10::BFloat16*>(nullptr));
    case torch::kInt64:
      return act(static_cast<const std::int64_t*>(nullptr));
    case torch::kInt32:
      return act(static_cast<const std::int32_t*>(nullptr));
    case torch::kInt16:
      return act(static_cast<const std::int16_t*>(nullptr));
    case torch::kInt8:
      return act(static_cast<const std::int8_t*>(nullptr));
    case torch::kUInt8:
      return act(static_cast<const std::uint8_t*>(nullptr));
    case c10::ScalarType::UInt16:
      return act(static_cast<const std::uint16_t*>(nullptr));
    case c10::ScalarType::UInt32:
      return act(static_cast<const std::uint32_t*>(nullptr));
    case c10::ScalarType::UInt64:
      return act(static_cast<const std::uint64_t*>(nullptr));
    case torch::kBool:
      return act(static_cast<const bool*>(nullptr));
    default:
      return;
  }
}

inline bool is_whole(torch::Dtype dtype) noexcept {
  return torch::isIntegralType(dtype, /*includeBool=*/true);
}

// Returns the memory of a tensor as numbers of its type.
template <typename T>
std::span<const T> numbers_in(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

// Returns entry `at` of a tensor of whole numbers.
inline std::int64_t whole_at(std::span<const std::byte> bytes, torch::Dtype dtype,
                             std::size_t at) {
  std::int64_t found = 0;
  with_type(dtype, [&]<typename T>(const T*) {
    found = static_cast<std::int64_t>(numbers_in<T>(bytes)[at]);
  });
  return found;
}

// Returns whether entry `at` of a tensor is not 0.
inline bool is_set(std::span<const std::byte> bytes, torch::Dtype dtype,
                   std::size_t at) {
  bool found = false;
  with_type(dtype, [&]<typename T>(const T*) {
    found = static_cast<double>(numbers_in<T>(bytes)[at]) != 0;
  });
  return found;
}

}  // namespace lockstep::data::detail
