#pragma once

#include <algorithm>
#include <string>
#include <string_view>

namespace lockstep::service {

inline bool is_control_character(char c) noexcept {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
}

inline bool has_control_characters(std::string_view text) noexcept {
  return std::any_of(text.begin(), text.end(), is_control_character);
}

// Returns the text with a space for each control character: nobody can make two lines
// of a log out of it.
inline std::string one_line(std::string text) {
  std::replace_if(text.begin(), text.end(), is_control_character, ' ');
  return text;
}

}  // namespace lockstep::service
