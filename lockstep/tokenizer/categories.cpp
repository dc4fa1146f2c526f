#include "lockstep/tokenizer/detail/categories.h"

#include <algorithm>

namespace lockstep::tokenizer {

Categories::Categories() : by_code_(0x110000, Category::other) {
  for (std::size_t i = 0; i < kCategoryTable.size(); ++i) {
    const auto begin = kCategoryTable[i] >> 2;
    const auto end =
        i + 1 < kCategoryTable.size() ? kCategoryTable[i + 1] >> 2 : by_code_.size();
    std::fill(by_code_.begin() + begin,
              by_code_.begin() + static_cast<std::ptrdiff_t>(end),
              static_cast<Category>(kCategoryTable[i] & 3));
  }
}

}  // namespace lockstep::tokenizer
