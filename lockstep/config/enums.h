#pragma once

#include <array>
#include <concepts>
#include <string_view>
#include <type_traits>

namespace lockstep::config {

// An enum of the configuration: its enumerators count from 0, and names_of(E) lists
// their spelling in a recipe, in the same order. The spelling `auto` is the planner's
// to replace.
template <typename E>
concept NamedEnum = std::is_enum_v<E> && requires(E e) {
  { names_of(e)[0] } -> std::convertible_to<std::string_view>;
};

template <NamedEnum E>
constexpr std::string_view name_of(E e) {
  return names_of(e)[static_cast<std::size_t>(e)];
}

}  // namespace lockstep::config
