#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "lockstep/tokenizer/vocabulary.h"

namespace lockstep::tokenizer {

inline constexpr std::uint32_t kNoRank = std::numeric_limits<std::uint32_t>::max();

// The merges by their pair: an open table, since this look-up is where the time of a
// word that was not met before goes.
class MergeTable {
 public:
  struct Found {
    std::uint32_t rank = kNoRank;  // the place in the list of merges
    Token result = 0;
  };

  // Holds up to `capacity` merges.
  explicit MergeTable(std::size_t capacity);
  explicit MergeTable(const std::vector<Merge>& merges);

  // Returns false, and changes nothing, if the pair is there already.
  bool insert(const Merge& merge, std::uint32_t rank);

  Found find(Token left, Token right) const {
    const auto key = key_of(left, right);
    for (auto at = place_of(key);; at = (at + 1) & mask_) {
      const auto& slot = slots_[at];
      if (slot.key == key) return slot.found;
      if (slot.found.rank == kNoRank) return {};
    }
  }

 private:
  struct Slot {
    std::uint64_t key = 0;
    Found found;  // rank kNoRank: the slot is free
  };

  static std::uint64_t key_of(Token left, Token right) {
    return std::uint64_t{left} << 32 | right;
  }
  std::size_t place_of(std::uint64_t key) const {
    return static_cast<std::size_t>((key * 0x9E3779B97F4A7C15ULL) >> shift_);
  }

  std::vector<Slot> slots_;
  std::size_t mask_ = 0;
  int shift_ = 0;
};

}  // namespace lockstep::tokenizer
