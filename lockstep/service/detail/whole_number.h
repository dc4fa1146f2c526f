#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"

namespace lockstep::service {

// Returns a whole number of JSON that this type can hold; throws Fault::io for all
// else. The library's get<int>() takes 5e31 and makes anything of it.
template <typename T, typename Json>
T whole_number(const Json& json) {
  if (json.is_number_unsigned()) {
    const auto value = json.template get<std::uint64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  } else if (json.is_number_integer()) {
    const auto value = json.template get<std::int64_t>();
    if (std::in_range<T>(value)) return static_cast<T>(value);
  }
  throw Error(Fault::io, "a stored number is damaged; restore a backup");
}

template <typename T, typename Json>
std::vector<T> whole_numbers(const std::vector<Json>& list) {
  std::vector<T> numbers;
  for (const auto& json : list) numbers.push_back(whole_number<T>(json));
  return numbers;
}

}  // namespace lockstep::service
