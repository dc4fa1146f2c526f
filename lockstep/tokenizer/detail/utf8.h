#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace lockstep::tokenizer {

struct CodePoint {
  char32_t code = 0;
  int length = 1;  // in bytes
};

// Decodes the code point at `at`, which begins a valid one.
inline CodePoint decode_one(const char* at) {
  const auto byte = [&](int i) { return static_cast<unsigned char>(at[i]); };
  const auto tail = [&](int i) { return static_cast<char32_t>(byte(i) & 0x3F); };
  const auto lead = static_cast<char32_t>(byte(0));
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xE0) return {(lead & 0x1F) << 6 | tail(1), 2};
  if (lead < 0xF0) return {(lead & 0x0F) << 12 | tail(1) << 6 | tail(2), 3};
  return {(lead & 0x07) << 18 | tail(1) << 12 | tail(2) << 6 | tail(3), 4};
}

void append_utf8(std::string& text, char32_t code);

// Returns how many bytes from the beginning on are valid UTF-8.
std::size_t valid_prefix(std::string_view bytes) noexcept;

// Returns the text with U+FFFD in place of what is not UTF-8, as Python's
// bytes.decode(errors="replace") does: one for each longest piece that begins a code
// point and can not go on.
std::string replace_invalid(std::string_view bytes);

}  // namespace lockstep::tokenizer
