#pragma once

#include <functional>
#include <mutex>
#include <string_view>
#include <vector>

#include "lockstep/tokenizer/encoder.h"

namespace lockstep::tokenizer {

// Returns pieces of about `piece_bytes` whose tokens, one after the other, are those of
// the text: it is cut only before a space behind a letter, where a word always ends.
std::vector<std::string_view> cut(const Tokenizer& tokenizer, std::string_view text,
                                  std::size_t piece_bytes);

// Encodes many texts at once on several threads, which keep their caches.
//
// Threads: encode() by one at a time.
class ParallelEncoder {
 public:
  ParallelEncoder(const Tokenizer& tokenizer, std::size_t threads);

  // Calls body(i, encoder) for every i below `count`, each with an encoder of its own
  // thread. The error of the lowest i is thrown.
  void for_each(std::size_t count,
                const std::function<void(std::size_t, Encoder&)>& body);

  // Returns the tokens of one text, which is cut for the threads.
  std::vector<Token> encode(std::string_view text, Special special);

 private:
  Tokenizer tokenizer_;
  std::size_t threads_;
  std::mutex mutex_;  // guards idle_
  std::vector<Encoder> idle_;
};

}  // namespace lockstep::tokenizer
