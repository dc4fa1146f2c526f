#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "lockstep/tokenizer/vocabulary.h"

// Makes a vocabulary from texts: the merges that BpeTrainer of Hugging Face's
// tokenizers finds (ByteLevel, the whole alphabet of bytes), ties included.
namespace lockstep::tokenizer {

class Categories;

// How often each word occurs.
//
// Threads: one at a time; several counters are put together by add().
class WordCounts {
 public:
  struct Hash {
    using is_transparent = void;
    std::size_t operator()(std::string_view word) const noexcept {
      return std::hash<std::string_view>{}(word);
    }
  };
  using Map = std::unordered_map<std::string, std::uint64_t, Hash, std::equal_to<>>;

  // Counts the words of one text. Special tokens in it are letters like any others.
  void count(std::string_view text, const Categories& categories);
  void add(const WordCounts& other);

  const Map& words() const noexcept { return words_; }

 private:
  Map words_;
};

// Counts the words of texts on several threads. Lines are texts of their own if
// `by_line`, each with its end, as Hugging Face's train() takes a file.
WordCounts count_words(const std::vector<std::string_view>& texts, bool by_line,
                       std::size_t threads);

struct TrainOptions {
  std::size_t vocab_size = 0;  // special tokens and the 256 bytes included
  std::uint64_t min_frequency = 0;
  std::vector<std::string> special_tokens = {std::string(kEndOfText)};
  // Called now and then with the number of tokens so far.
  std::function<void(std::size_t)> progress = {};
};

// Returns fewer tokens than asked for where the text has no more pairs. Fault::config
// if vocab_size has no room for the bytes, or there are no words.
Vocabulary train(const WordCounts& words, const TrainOptions& options);

}  // namespace lockstep::tokenizer
