// tiktoken's format: "base64 rank" on each line. The merges are not in it, but follow
// from the ranks.
#include <array>
#include <unordered_map>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/tokenizer/detail/formats.h"
#include "lockstep/tokenizer/detail/word_merger.h"

namespace lockstep::tokenizer {
namespace {

constexpr std::array<int, 256> kDigits = [] {
  std::array<int, 256> digits{};
  digits.fill(-1);
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (std::size_t i = 0; i < kAlphabet.size(); ++i) {
    digits[static_cast<unsigned char>(kAlphabet[i])] = static_cast<int>(i);
  }
  return digits;
}();

std::optional<std::string> from_base64(std::string_view text) {
  if (text.empty() || text.size() % 4 != 0) return std::nullopt;
  std::size_t padding = 0;
  while (padding < 2 && text[text.size() - 1 - padding] == '=') ++padding;
  std::string bytes;
  std::uint32_t bits = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const bool is_padding = i >= text.size() - padding;
    const int digit = is_padding ? 0 : kDigits[static_cast<unsigned char>(text[i])];
    if (digit < 0) return std::nullopt;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    if (i % 4 != 3) continue;
    for (const int shift : {16, 8, 0}) bytes += static_cast<char>(bits >> shift);
    bits = 0;
  }
  bytes.resize(bytes.size() - padding);
  return bytes;
}

struct RankedToken {
  std::string bytes;
  Token rank = 0;
};

RankedToken parse_line(std::string_view line, const std::string& place) {
  const auto blank = line.find(' ');
  const auto bytes =
      blank == line.npos ? std::nullopt : from_base64(line.substr(0, blank));
  const auto rank =
      blank == line.npos ? std::nullopt : text::to_integer(line.substr(blank + 1));
  if (!bytes || !rank || *rank < 0 || *rank > 0x7FFFFFFF) {
    throw Error(Fault::io, place, ": '", line.substr(0, 40),
                "' is not a token in base64 and its rank; fetch the file again");
  }
  return {*bytes, static_cast<Token>(*rank)};
}

// Files of OpenAI's newer encodings look the same, but their words are split by another
// pattern, of which the file says nothing.
void refuse_other_patterns(std::size_t num_tokens, const std::string& path) {
  for (const auto& [count, name] :
       {std::pair(std::size_t{100256}, "cl100k_base"), {199998, "o200k_base"}}) {
    if (num_tokens == count) {
      throw Error(Fault::config, path, ": has ", count, " tokens as ", name,
                  " has, whose pattern for words is not GPT-2's; use a vocabulary of "
                  "GPT-2's kind");
    }
  }
}

// Returns the first id without a token, which is where <|endoftext|> is.
Token first_gap(const Vocabulary& vocabulary) {
  Token id = 0;
  while (id < vocabulary.bytes.size() && !vocabulary.bytes[id].empty()) ++id;
  return id;
}

// A token is what the merges before it make of its bytes, put together: the last two
// parts are its merge. Where more than two are left, only a whole word can be it.
void add_merges(Vocabulary& vocabulary) {
  MergeTable table(vocabulary.bytes.size());
  WordMerger merger;
  for (std::size_t id = 0; id < vocabulary.bytes.size(); ++id) {
    const auto& bytes = vocabulary.bytes[id];
    if (bytes.size() < 2) continue;
    const auto& parts = merger.merge(bytes, vocabulary.byte_tokens, table);
    if (parts.size() != 2) {
      vocabulary.whole_words_first = true;
      continue;
    }
    const Merge merge{parts[0], parts[1], static_cast<Token>(id)};
    table.insert(merge, static_cast<std::uint32_t>(vocabulary.merges.size()));
    vocabulary.merges.push_back(merge);
  }
}

std::vector<RankedToken> parse_lines(std::string_view text, const std::string& path) {
  std::vector<RankedToken> tokens;
  std::unordered_map<std::string, std::size_t> lines;  // by bytes, then by rank
  std::unordered_map<Token, std::size_t> ranks;
  std::size_t number = 0;
  while (!text.empty()) {
    const auto end = std::min(text.find('\n'), text.size());
    auto line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    ++number;
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const auto place = str(path, ":", number);
    auto token = parse_line(line, place);
    const auto [same, is_new] = lines.emplace(token.bytes, number);
    const auto [taken, is_free] = ranks.emplace(token.rank, number);
    if (!is_new || !is_free) {
      throw Error(Fault::io, place, ": ", is_new ? "the rank" : "the token",
                  " is that of line ", is_new ? taken->second : same->second,
                  "; fetch the file again");
    }
    tokens.push_back(std::move(token));
  }
  return tokens;
}

}  // namespace

Vocabulary parse_tiktoken(std::string_view text, const std::string& path) {
  auto tokens = parse_lines(text, path);
  refuse_other_patterns(tokens.size(), path);
  Vocabulary vocabulary;
  vocabulary.byte_tokens.fill(~Token{0});
  for (auto& token : tokens) {
    check_id(token.rank, tokens.size(), [&] { return path; });
    if (token.rank >= vocabulary.bytes.size()) vocabulary.bytes.resize(token.rank + 1);
    if (token.bytes.size() == 1) {
      vocabulary.byte_tokens[static_cast<unsigned char>(token.bytes[0])] = token.rank;
    }
    vocabulary.bytes[token.rank] = std::move(token.bytes);
  }
  for (std::size_t byte = 0; byte < 256; ++byte) {
    if (vocabulary.byte_tokens[byte] != ~Token{0}) continue;
    throw Error(Fault::io, path, ": there is no token for the byte ", byte,
                "; fetch the file again");
  }
  add_merges(vocabulary);
  const auto end_of_text = first_gap(vocabulary);
  if (end_of_text == vocabulary.bytes.size()) vocabulary.bytes.emplace_back();
  vocabulary.bytes[end_of_text] = kEndOfText;
  vocabulary.added.push_back({.text = std::string(kEndOfText), .id = end_of_text});
  return vocabulary;
}

}  // namespace lockstep::tokenizer
