#pragma once

#include <array>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "lockstep/tokenizer/detail/categories.h"
#include "lockstep/tokenizer/detail/merge_table.h"
#include "lockstep/tokenizer/vocabulary.h"

namespace lockstep::tokenizer {

// The tables of a Tokenizer, ready for encoding.
struct Model {
  explicit Model(Vocabulary from);
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  Vocabulary vocabulary;
  MergeTable merges;
  Categories categories;
  // Only with whole_words_first. The keys are in `vocabulary`.
  std::unordered_map<std::string_view, Token> words;
  std::optional<Token> end_of_text;
  bool begins_added[256] = {};  // whether an added token begins with this byte
};

// An added token in a text.
struct AddedMatch {
  std::size_t begin = 0;
  const AddedToken* token = nullptr;
};

// Returns the first added token of a text, of several that begin there the longest;
// nothing if there is none. Special ones only count if `special`.
std::optional<AddedMatch> find_added(const Model& model, std::string_view text,
                                     bool special);

// Throws Fault::io, beginning with `place`, where the tables contradict themselves.
void check_vocabulary(const Vocabulary& vocabulary, std::string_view place);

}  // namespace lockstep::tokenizer
