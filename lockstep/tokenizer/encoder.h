#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "lockstep/tokenizer/tokenizer.h"

namespace lockstep::tokenizer {

class WordMerger;

// Encodes many texts: remembers the tokens of words that it has met.
//
// Threads:  one at a time; several threads have one each.
// Lifetime: shares the tokenizer's tables.
class Encoder {
 public:
  explicit Encoder(Tokenizer tokenizer);
  ~Encoder();
  Encoder(Encoder&&) noexcept;

  const Tokenizer& tokenizer() const noexcept { return tokenizer_; }

  // Appends the tokens of `text`. If it throws, `tokens` is as it was.
  void encode(std::string_view text, Special special, std::vector<Token>& tokens);

 private:
  struct Entry;
  struct Key;

  void encode_valid(std::string_view text, Special special, std::vector<Token>& tokens);
  void encode_words(std::string_view text, std::vector<Token>& tokens);
  void encode_word(std::string_view word, std::vector<Token>& tokens);
  static void fill(Entry& entry, const Key& key, std::span<const Token> tokens);

  Tokenizer tokenizer_;
  std::unique_ptr<WordMerger> merger_;
  std::vector<Entry> cache_;
};

}  // namespace lockstep::tokenizer
