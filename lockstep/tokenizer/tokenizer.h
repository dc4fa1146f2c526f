#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/tokenizer/vocabulary.h"

// Byte-level BPE with GPT-2's splitting of words: text to tokens and back, the same
// tokens as tiktoken and transformers give.
namespace lockstep::tokenizer {

struct Model;

// What becomes of "<|endoftext|>" and other special tokens that a text spells out.
enum class Special {
  refuse,   // an error: text from outside can not end a document, or play a role
  allow,    // they are the tokens
  as_text,  // they are letters like any others
};

// All errors are lockstep::Error: Fault::io for a file that is damaged, with its line,
// Fault::config for what is not supported and for refused text.
//
// Threads:  any number; it never changes.
// Lifetime: a copy shares the tables.
class Tokenizer {
 public:
  // Checks the tables; `place` is what errors begin with, a path for example.
  explicit Tokenizer(Vocabulary vocabulary, std::string_view place = "tokenizer");

  // Reads tokenizer.json, a .tiktoken file, or vocab.json with merges.txt beside it. Of
  // a folder it takes the first of these that is there.
  static Tokenizer load(const std::filesystem::path& path);

  // Bytes that are not UTF-8 count as U+FFFD, as in Python with errors="replace", so
  // that the tokens of such a text do not give its bytes back. For more than a few
  // texts an Encoder (encoder.h) is faster.
  std::vector<Token> encode(std::string_view text,
                            Special special = Special::refuse) const;

  // Returns the bytes. Fault::config for a number that is no token.
  std::string decode(std::span<const Token> tokens) const;

  // Returns the bytes of one token, which need not be whole letters.
  const std::string& token_bytes(Token token) const;

  // Returns one more than the largest token.
  std::size_t size() const noexcept;

  // Returns the token that stands between documents, if there is one.
  std::optional<Token> end_of_text() const noexcept;

  const Vocabulary& vocabulary() const noexcept;
  const Model& model() const noexcept { return *model_; }

 private:
  std::shared_ptr<const Model> model_;
};

}  // namespace lockstep::tokenizer
