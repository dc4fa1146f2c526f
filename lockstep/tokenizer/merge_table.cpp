#include "lockstep/tokenizer/detail/merge_table.h"

#include <algorithm>
#include <bit>

namespace lockstep::tokenizer {

MergeTable::MergeTable(std::size_t capacity) {
  // At most half full, so that a miss ends after a slot or two.
  const auto size = std::bit_ceil(std::max<std::size_t>(2 * capacity + 1, 16));
  slots_.resize(size);
  mask_ = size - 1;
  shift_ = 64 - std::countr_zero(size);
}

MergeTable::MergeTable(const std::vector<Merge>& merges) : MergeTable(merges.size()) {
  std::uint32_t rank = 0;
  for (const auto& merge : merges) insert(merge, rank++);
}

bool MergeTable::insert(const Merge& merge, std::uint32_t rank) {
  const auto key = key_of(merge.left, merge.right);
  for (auto at = place_of(key);; at = (at + 1) & mask_) {
    auto& slot = slots_[at];
    if (slot.found.rank == kNoRank) {
      slot = {key, {rank, merge.result}};
      return true;
    }
    if (slot.key == key) return false;
  }
}

}  // namespace lockstep::tokenizer
