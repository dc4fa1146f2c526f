#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tokenizer/vocabulary.h"

// The readers of each file format: text in, tables out. `path` is for errors, which are
// Fault::io with the line, or Fault::config for what is not supported.
namespace lockstep::tokenizer {

Vocabulary parse_tiktoken(std::string_view text, const std::string& path);
Vocabulary parse_tokenizer_json(std::string_view text, const std::string& path);

struct VocabAndMerges {
  std::string_view vocab;  // vocab.json
  std::string_view merges;
  std::string vocab_path;
  std::string merges_path;
};
Vocabulary parse_vocab_and_merges(const VocabAndMerges& files);

// What a vocab.json and a list of merges say, in letters.
struct LetterTables {
  std::map<std::string, Token, std::less<>> tokens;
  struct Pair {
    std::string left;
    std::string right;
    std::size_t line = 0;  // of its file, or its number in a list
  };
  std::vector<Pair> merges;
  std::vector<AddedToken> added;
  bool whole_words_first = false;

  std::string vocab_path;
  std::string_view vocab_text;  // where the line of a token is looked up
  std::string merges_place;     // "merges.txt:", "tokenizer.json: merge "
};
Vocabulary assemble(LetterTables tables);

// Returns the line of a byte; the first is 1.
std::size_t line_of(std::string_view text, std::size_t byte);

// Refuses an id so far beyond the number of tokens that it must be damage. `place` is
// called for the error: to find the line of a token takes a look at the whole file.
void check_id(Token id, std::size_t num_tokens,
              const std::function<std::string()>& place);

}  // namespace lockstep::tokenizer
