#include "lockstep/tokenizer/parallel.h"

#include <algorithm>

#include "lockstep/base/in_parallel.h"

namespace lockstep::tokenizer {
namespace {

constexpr std::size_t kEncodedPieceBytes = 256 << 10;

bool is_space(char c) {
  return c == ' ' || (c >= '\t' && c <= '\r');
}

// Only between two ASCII characters, so that no code point, valid or not, is cut.
bool ends_a_word(char before, char after) {
  return static_cast<unsigned char>(before) < 0x80 && !is_space(before) &&
         is_space(after);
}

bool has_space(const AddedToken& token) {
  return std::any_of(token.text.begin(), token.text.end(), is_space);
}

}  // namespace

std::vector<std::string_view> cut(const Tokenizer& tokenizer, std::string_view text,
                                  std::size_t piece_bytes) {
  const auto& added = tokenizer.vocabulary().added;
  // Such a token could lie across a cut.
  if (std::any_of(added.begin(), added.end(), has_space)) return {text};
  std::vector<std::string_view> pieces;
  while (text.size() > piece_bytes) {
    auto end = std::max<std::size_t>(piece_bytes, 1);
    while (end < text.size() && !ends_a_word(text[end - 1], text[end])) ++end;
    pieces.push_back(text.substr(0, end));
    text.remove_prefix(end);
  }
  if (!text.empty()) pieces.push_back(text);
  return pieces;
}

ParallelEncoder::ParallelEncoder(const Tokenizer& tokenizer, std::size_t threads)
    : tokenizer_(tokenizer), threads_(std::max<std::size_t>(threads, 1)) {}

void ParallelEncoder::for_each(std::size_t count,
                               const std::function<void(std::size_t, Encoder&)>& body) {
  const auto borrow = [&]() -> Encoder {
    const std::scoped_lock lock(mutex_);
    if (idle_.empty()) return Encoder(tokenizer_);
    auto encoder = std::move(idle_.back());
    idle_.pop_back();
    return encoder;
  };
  in_parallel(count, threads_, [&](std::size_t i) {
    auto encoder = borrow();
    body(i, encoder);
    const std::scoped_lock lock(mutex_);
    idle_.push_back(std::move(encoder));
  });
}

std::vector<Token> ParallelEncoder::encode(std::string_view text, Special special) {
  const auto pieces = cut(tokenizer_, text, kEncodedPieceBytes);
  std::vector<std::vector<Token>> parts(pieces.size());
  for_each(pieces.size(), [&](std::size_t i, Encoder& encoder) {
    encoder.encode(pieces[i], special, parts[i]);
  });
  std::vector<Token> tokens;
  for (const auto& part : parts) {
    tokens.insert(tokens.end(), part.begin(), part.end());
  }
  return tokens;
}

}  // namespace lockstep::tokenizer
