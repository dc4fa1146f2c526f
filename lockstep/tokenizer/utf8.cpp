#include "lockstep/tokenizer/detail/utf8.h"

#include <cstdint>
#include <cstring>

namespace lockstep::tokenizer {
namespace {

// The bytes that begin here: a whole code point, or a piece that can not go on.
struct Sequence {
  std::size_t length = 1;
  bool valid = false;
};

// Bytes that may follow a lead byte; the first of them is narrower for some, which
// leaves out overlong forms, surrogates and what lies above U+10FFFF.
struct LetterShape {
  std::size_t length = 1;
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
};

LetterShape shape_of(unsigned char lead) noexcept {
  if (lead < 0xC2 || lead > 0xF4) return {};
  if (lead < 0xE0) return {.length = 2};
  if (lead == 0xE0) return {.length = 3, .low = 0xA0};
  if (lead == 0xED) return {.length = 3, .high = 0x9F};
  if (lead < 0xF0) return {.length = 3};
  if (lead == 0xF0) return {.length = 4, .low = 0x90};
  if (lead == 0xF4) return {.length = 4, .high = 0x8F};
  return {.length = 4};
}

Sequence sequence_at(std::string_view bytes) noexcept {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(bytes[i]); };
  if (byte(0) < 0x80) return {1, true};
  const auto shape = shape_of(byte(0));
  if (shape.length == 1) return {};
  for (std::size_t i = 1; i < shape.length; ++i) {
    const auto low = i == 1 ? shape.low : 0x80;
    const auto high = i == 1 ? shape.high : 0xBF;
    if (i >= bytes.size() || byte(i) < low || byte(i) > high) return {i, false};
  }
  return {shape.length, true};
}

}  // namespace

void append_utf8(std::string& text, char32_t code) {
  const auto tail = [&](int shift) {
    text += static_cast<char>(0x80 | ((code >> shift) & 0x3F));
  };
  if (code < 0x80) {
    text += static_cast<char>(code);
  } else if (code < 0x800) {
    text += static_cast<char>(0xC0 | code >> 6);
    tail(0);
  } else if (code < 0x10000) {
    text += static_cast<char>(0xE0 | code >> 12);
    tail(6);
    tail(0);
  } else {
    text += static_cast<char>(0xF0 | code >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

std::size_t valid_prefix(std::string_view bytes) noexcept {
  std::size_t at = 0;
  while (at < bytes.size()) {
    std::uint64_t eight = 0;
    if (bytes.size() - at >= sizeof eight) {
      std::memcpy(&eight, bytes.data() + at, sizeof eight);
      if ((eight & 0x8080808080808080ULL) == 0) {
        at += sizeof eight;
        continue;
      }
    }
    const auto sequence = sequence_at(bytes.substr(at));
    if (!sequence.valid) return at;
    at += sequence.length;
  }
  return at;
}

std::string replace_invalid(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const auto good = valid_prefix(bytes);
    text += bytes.substr(0, good);
    bytes.remove_prefix(good);
    if (bytes.empty()) break;
    append_utf8(text, 0xFFFD);
    bytes.remove_prefix(sequence_at(bytes).length);
  }
  return text;
}

}  // namespace lockstep::tokenizer
