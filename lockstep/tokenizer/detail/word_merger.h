#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "lockstep/tokenizer/detail/merge_table.h"

namespace lockstep::tokenizer {

// Merges the bytes of one word: always the pair of the lowest rank, and of equal ones
// the leftmost. Keeps its memory from word to word.
//
// Threads: one at a time.
class WordMerger {
 public:
  // Returns the tokens, valid until the next call.
  const std::vector<Token>& merge(std::string_view word,
                                  const std::array<Token, 256>& byte_tokens,
                                  const MergeTable& merges);

 private:
  // A pair in the heap of a long word. It is stale when its left part has changed.
  struct Candidate {
    std::uint32_t rank = 0;
    std::uint32_t left = 0;   // the place of the first part
    std::uint32_t right = 0;  // and of the second
    Token result = 0;

    // The order of std::push_heap, whose top is the largest.
    friend bool operator<(const Candidate& a, const Candidate& b) {
      return a.rank != b.rank ? a.rank > b.rank : a.left > b.left;
    }
  };

  void merge_short(const MergeTable& merges);
  void merge_long(const MergeTable& merges);
  void offer(const MergeTable& merges, std::uint32_t left);
  bool is_current(const Candidate& candidate, const MergeTable& merges) const;
  void join(const Candidate& candidate);
  void compact();

  std::vector<Token> parts_;
  std::vector<MergeTable::Found> pairs_;  // of a short word: of each part and its next
  std::vector<Candidate> heap_;           // of a long word
  std::vector<std::uint32_t> next_, previous_;
};

}  // namespace lockstep::tokenizer
