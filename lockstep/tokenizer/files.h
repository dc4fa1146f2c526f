#pragma once

#include <filesystem>
#include <string>

#include "lockstep/tokenizer/tokenizer.h"

// A tokenizer as the files that transformers, tokenizers and Tokenizer::load() read.
namespace lockstep::tokenizer {

// Returns {"token": id, ...} in letters, by id.
std::string vocab_json(const Vocabulary& vocabulary);

// Returns "#version: 0.2" and a pair on each line.
std::string merges_txt(const Vocabulary& vocabulary);

// Returns all of it, in the format of the library tokenizers.
std::string tokenizer_json(const Vocabulary& vocabulary);

// Returns what AutoTokenizer looks at first: the class, and the special tokens' roles.
std::string tokenizer_config_json(const Vocabulary& vocabulary);

// Writes all four into `folder`, which is made if need be; each file is whole or
// absent. vocab.json and merges.txt can not say whole_words_first: where that matters
// they are left out, and old ones removed.
void save(const Tokenizer& tokenizer, const std::filesystem::path& folder);

}  // namespace lockstep::tokenizer
