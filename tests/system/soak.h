#pragma once

#include <cstdint>
#include <cstdlib>
#include <string>

// Tests that are short unless somebody asks for more.
namespace lockstep::test {

inline std::uint32_t soak_number(const char* variable, std::uint32_t otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? static_cast<std::uint32_t>(std::stoul(text)) : otherwise;
}

}  // namespace lockstep::test
