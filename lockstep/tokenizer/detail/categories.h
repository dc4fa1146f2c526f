#pragma once

#include <array>
#include <cstdint>
#include <vector>

namespace lockstep::tokenizer {

// The classes that GPT-2's pattern tells apart: \p{L}, \p{N}, \s and all others.
enum class Category : std::uint8_t { other, letter, number, space };

// Each entry is the first code point of a range, times four, plus its category.
inline constexpr std::size_t kCategoryRanges = 1610;
extern const std::array<std::uint32_t, kCategoryRanges> kCategoryTable;

// The category of every code point, one byte each: a search of the ranges for every
// character would cost more than the rest of the scan.
class Categories {
 public:
  Categories();

  Category operator[](char32_t code) const { return by_code_[code]; }

 private:
  std::vector<Category> by_code_;
};

}  // namespace lockstep::tokenizer
