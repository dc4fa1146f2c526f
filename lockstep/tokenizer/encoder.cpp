#include "lockstep/tokenizer/encoder.h"

#include <array>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/tokenizer/detail/model.h"
#include "lockstep/tokenizer/detail/scanner.h"
#include "lockstep/tokenizer/detail/utf8.h"
#include "lockstep/tokenizer/detail/word_merger.h"

namespace lockstep::tokenizer {
namespace {

// A cache of 1 MiB, so that it stays in a core's own memory: twice as many entries hit
// more often and are slower.
constexpr int kCacheBits = 15;
constexpr std::size_t kLongestCached = 15;

// Below this a text is done before an empty cache would have been made.
constexpr std::size_t kWorthACache = 2048;

constexpr std::size_t kLongestWord = std::size_t{1} << 31;

}  // namespace

// A word of up to 15 bytes as two numbers: its bytes, zeros, its length.
struct Encoder::Key {
  std::uint64_t low = 0;
  std::uint64_t high = 0;

  // `readable` is how many bytes there are from the word's beginning to the text's end.
  Key(std::string_view word, std::size_t readable) {
    const auto size = word.size();
    if (readable >= 16) {
      std::memcpy(&low, word.data(), 8);
      std::memcpy(&high, word.data() + 8, 8);
      // By steps of a byte: a shift by 64 bits is not defined.
      if (size < 8) {
        low &= (std::uint64_t{1} << (8 * size)) - 1;
        high = 0;
      } else {
        high &= (std::uint64_t{1} << (8 * (size - 8))) - 1;
      }
    } else {
      std::array<char, 16> padded{};
      std::memcpy(padded.data(), word.data(), size);
      std::memcpy(&low, padded.data(), 8);
      std::memcpy(&high, padded.data() + 8, 8);
    }
    high |= std::uint64_t{size} << 56;
  }

  std::size_t place() const {
    const auto mixed = (low ^ (high * 0xC2B2AE3D27D4EB4FULL)) * 0x9E3779B97F4A7C15ULL;
    return static_cast<std::size_t>(mixed >> (64 - kCacheBits));
  }
};

struct Encoder::Entry {
  std::uint64_t low = 0;
  std::uint64_t high = 0;  // 0 where there is no word, since a length is never 0
  std::array<Token, 3> tokens{};
  std::uint32_t count = 0;
};

Encoder::Encoder(Tokenizer tokenizer)
    : tokenizer_(std::move(tokenizer)), merger_(std::make_unique<WordMerger>()) {}
Encoder::~Encoder() = default;
Encoder::Encoder(Encoder&&) noexcept = default;

void Encoder::encode(std::string_view text, Special special,
                     std::vector<Token>& tokens) {
  if (cache_.empty() && text.size() >= kWorthACache) {
    cache_.resize(std::size_t{1} << kCacheBits);
  }
  const auto before = tokens.size();
  try {
    if (valid_prefix(text) == text.size()) {
      encode_valid(text, special, tokens);
    } else {
      encode_valid(replace_invalid(text), special, tokens);
    }
  } catch (...) {
    tokens.resize(before);
    throw;
  }
}

void Encoder::encode_valid(std::string_view text, Special special,
                           std::vector<Token>& tokens) {
  std::size_t at = 0;
  while (true) {
    const auto rest = text.substr(at);
    const auto match =
        find_added(tokenizer_.model(), rest, special != Special::as_text);
    if (!match) break;
    if (match->token->special && special == Special::refuse) {
      throw Error(Fault::config, "tokenizer: the text contains the special token '",
                  match->token->text, "' at byte ", at + match->begin,
                  "; remove it, or allow special tokens");
    }
    encode_words(rest.substr(0, match->begin), tokens);
    tokens.push_back(match->token->id);
    at += match->begin + match->token->text.size();
  }
  encode_words(text.substr(at), tokens);
}

void Encoder::encode_words(std::string_view text, std::vector<Token>& tokens) {
  Scanner scanner(tokenizer_.model().categories, text);
  const auto* end = text.data() + text.size();
  while (!scanner.done()) {
    const auto word = scanner.next();
    if (word.size() > kLongestCached || cache_.empty()) {
      encode_word(word, tokens);
      continue;
    }
    const Key key(word, static_cast<std::size_t>(end - word.data()));
    auto& entry = cache_[key.place()];
    if (entry.low == key.low && entry.high == key.high) {
      tokens.insert(tokens.end(), entry.tokens.begin(),
                    entry.tokens.begin() + entry.count);
    } else {
      const auto before = tokens.size();
      encode_word(word, tokens);
      fill(entry, key, std::span(tokens).subspan(before));
    }
  }
}

void Encoder::fill(Entry& entry, const Key& key, std::span<const Token> tokens) {
  if (tokens.size() > entry.tokens.size()) return;
  entry.low = key.low;
  entry.high = key.high;
  entry.count = static_cast<std::uint32_t>(tokens.size());
  std::copy(tokens.begin(), tokens.end(), entry.tokens.begin());
}

void Encoder::encode_word(std::string_view word, std::vector<Token>& tokens) {
  const auto& model = tokenizer_.model();
  if (word.size() > kLongestWord) {
    throw Error(Fault::config, "tokenizer: one word of the text has ", word.size(),
                " bytes, more than ", kLongestWord, "; is this text?");
  }
  if (model.vocabulary.whole_words_first) {
    if (const auto found = model.words.find(word); found != model.words.end()) {
      tokens.push_back(found->second);
      return;
    }
  }
  const auto& parts = merger_->merge(word, model.vocabulary.byte_tokens, model.merges);
  tokens.insert(tokens.end(), parts.begin(), parts.end());
}

}  // namespace lockstep::tokenizer
