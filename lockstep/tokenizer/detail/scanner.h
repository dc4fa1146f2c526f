#pragma once

#include <array>
#include <string_view>

#include "lockstep/tokenizer/detail/categories.h"
#include "lockstep/tokenizer/detail/utf8.h"

namespace lockstep::tokenizer {

// Splits text into words as GPT-2's pattern does,
//
//   's|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+
//
// in one pass: only the first character decides which branch matches, and only the last
// space of a run depends on what comes behind it.
class Scanner {
 public:
  // REQUIRES: `text` is valid UTF-8. Both outlive the scanner.
  Scanner(const Categories& categories, std::string_view text)
      : categories_(categories), at_(text.data()), end_(text.data() + text.size()) {}

  bool done() const noexcept { return at_ == end_; }

  // Returns the next word. REQUIRES: !done().
  std::string_view next() {
    const char* begin = at_;
    if (*begin == ' ' && begin + 1 < end_) {
      const auto kind = category_at(begin + 1);
      if (kind != Category::space) return take(begin, run_end(begin + 1, kind));
    }
    const auto kind = category_at(begin);
    if (kind == Category::space) return next_space();
    if (*begin == '\'') {
      if (const auto length = contraction(); length > 0) {
        return take(begin, begin + length);
      }
    }
    return take(begin, run_end(begin, kind));
  }

 private:
  static constexpr auto kAscii = [] {
    std::array<Category, 128> table{};
    for (std::size_t c = 0; c < table.size(); ++c) {
      const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      const bool space = c == ' ' || (c >= 9 && c <= 13);
      table[c] = letter                 ? Category::letter
                 : c >= '0' && c <= '9' ? Category::number
                 : space                ? Category::space
                                        : Category::other;
    }
    return table;
  }();

  std::string_view take(const char* begin, const char* end) {
    at_ = end;
    return {begin, static_cast<std::size_t>(end - begin)};
  }

  Category category_at(const char* at) const {
    const auto lead = static_cast<unsigned char>(*at);
    return lead < 0x80 ? kAscii[lead] : categories_[decode_one(at).code];
  }

  const char* run_end(const char* at, Category kind) const {
    while (at < end_) {
      const auto lead = static_cast<unsigned char>(*at);
      if (lead < 0x80) {
        if (kAscii[lead] != kind) return at;
        ++at;
      } else {
        const auto letter = decode_one(at);
        if (categories_[letter.code] != kind) return at;
        at += letter.length;
      }
    }
    return at;
  }

  // A run of spaces leaves its last one to the word behind it, if there is one: to be
  // its beginning if it is a blank, else a word of its own.
  std::string_view next_space() {
    const auto* end = run_end(at_, Category::space);
    if (end == end_) return take(at_, end);
    const auto* last = end - 1;
    while ((static_cast<unsigned char>(*last) & 0xC0) == 0x80) --last;
    return take(at_, last > at_ ? last : end);
  }

  // Returns the length of 's, 't, 'm, 'd, 're, 've or 'll at the current place, or 0.
  int contraction() const {
    const auto left = end_ - at_;
    if (left < 2) return 0;
    const char first = at_[1];
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return 2;
    if (left < 3) return 0;
    const char second = at_[2];
    const bool matches = ((first == 'r' || first == 'v') && second == 'e') ||
                         (first == 'l' && second == 'l');
    return matches ? 3 : 0;
  }

  const Categories& categories_;
  const char* at_;
  const char* end_;
};

}  // namespace lockstep::tokenizer
