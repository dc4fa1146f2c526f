#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The tables of a byte-level BPE, whichever files they came from.
namespace lockstep::tokenizer {

using Token = std::uint32_t;

inline constexpr std::string_view kEndOfText = "<|endoftext|>";

// Two neighbours become `result`. The merge that stands first in the list goes first.
struct Merge {
  Token left = 0;
  Token right = 0;
  Token result = 0;

  friend bool operator==(const Merge&, const Merge&) = default;
};

// A token that is cut out of the text before words are split.
struct AddedToken {
  std::string text;
  Token id = 0;
  // A special token has a meaning for the model, so that text from outside must not
  // contain it unless the caller allows it. Others are matched in every text.
  bool special = true;

  friend bool operator==(const AddedToken&, const AddedToken&) = default;
};

struct Vocabulary {
  std::vector<std::string> bytes;  // of each token, by id; "" is an id without a token
  std::array<Token, 256> byte_tokens{};  // the token of each single byte
  std::vector<Merge> merges;
  std::vector<AddedToken> added;
  // A word that is a token as a whole becomes that token, even where the merges would
  // not lead there (tiktoken's rule; "ignore_merges" in tokenizer.json).
  bool whole_words_first = false;

  // Returns the id of an added token.
  std::optional<Token> find_added(std::string_view text) const;
};

// Returns a token as vocab.json and merges.txt spell it: every byte is a printable
// letter ("Ġthe" for " the").
std::string to_letters(std::string_view bytes);

// Reverses to_letters(); empty if one of the letters stands for no byte.
std::optional<std::string> from_letters(std::string_view letters);

}  // namespace lockstep::tokenizer
