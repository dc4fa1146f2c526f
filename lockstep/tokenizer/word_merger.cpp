#include "lockstep/tokenizer/detail/word_merger.h"

#include <algorithm>
#include <array>

namespace lockstep::tokenizer {
namespace {

// Up to here a scan of all pairs is faster than a heap; beyond it the scan's square
// would make a long run of one character a way to stop the program.
constexpr std::size_t kShortWord = 96;

constexpr std::uint32_t kNone = ~std::uint32_t{0};
constexpr Token kGone = ~Token{0};

}  // namespace

const std::vector<Token>& WordMerger::merge(std::string_view word,
                                            const std::array<Token, 256>& byte_tokens,
                                            const MergeTable& merges) {
  parts_.clear();
  for (const char byte : word) {
    parts_.push_back(byte_tokens[static_cast<unsigned char>(byte)]);
  }
  if (parts_.size() <= kShortWord) {
    merge_short(merges);
  } else {
    merge_long(merges);
  }
  return parts_;
}

void WordMerger::merge_short(const MergeTable& merges) {
  pairs_.clear();
  for (std::size_t i = 0; i + 1 < parts_.size(); ++i) {
    pairs_.push_back(merges.find(parts_[i], parts_[i + 1]));
  }
  while (!pairs_.empty()) {
    std::size_t best = 0;
    for (std::size_t i = 1; i < pairs_.size(); ++i) {
      if (pairs_[i].rank < pairs_[best].rank) best = i;
    }
    if (pairs_[best].rank == kNoRank) return;
    parts_[best] = pairs_[best].result;
    const auto at = static_cast<std::ptrdiff_t>(best);
    parts_.erase(parts_.begin() + at + 1);
    pairs_.erase(pairs_.begin() + at);
    if (best > 0) pairs_[best - 1] = merges.find(parts_[best - 1], parts_[best]);
    if (best < pairs_.size()) {
      pairs_[best] = merges.find(parts_[best], parts_[best + 1]);
    }
  }
}

void WordMerger::merge_long(const MergeTable& merges) {
  const auto count = static_cast<std::uint32_t>(parts_.size());
  next_.resize(count);
  previous_.resize(count);
  heap_.clear();
  for (std::uint32_t i = 0; i < count; ++i) {
    next_[i] = i + 1 < count ? i + 1 : kNone;
    previous_[i] = i > 0 ? i - 1 : kNone;
  }
  for (std::uint32_t i = 0; i < count; ++i) offer(merges, i);
  while (!heap_.empty()) {
    std::pop_heap(heap_.begin(), heap_.end());
    const auto candidate = heap_.back();
    heap_.pop_back();
    if (!is_current(candidate, merges)) continue;
    join(candidate);
    offer(merges, candidate.left);
    if (previous_[candidate.left] != kNone) offer(merges, previous_[candidate.left]);
  }
  compact();
}

void WordMerger::offer(const MergeTable& merges, std::uint32_t left) {
  const auto right = next_[left];
  if (right == kNone) return;
  const auto found = merges.find(parts_[left], parts_[right]);
  if (found.rank == kNoRank) return;
  heap_.push_back({found.rank, left, right, found.result});
  std::push_heap(heap_.begin(), heap_.end());
}

bool WordMerger::is_current(const Candidate& candidate,
                            const MergeTable& merges) const {
  if (parts_[candidate.left] == kGone || next_[candidate.left] != candidate.right) {
    return false;
  }
  return merges.find(parts_[candidate.left], parts_[candidate.right]).rank ==
         candidate.rank;
}

void WordMerger::join(const Candidate& candidate) {
  parts_[candidate.left] = candidate.result;
  parts_[candidate.right] = kGone;
  const auto behind = next_[candidate.right];
  next_[candidate.left] = behind;
  if (behind != kNone) previous_[behind] = candidate.left;
}

void WordMerger::compact() {
  parts_.erase(std::remove(parts_.begin(), parts_.end(), kGone), parts_.end());
}

}  // namespace lockstep::tokenizer
