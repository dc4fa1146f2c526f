#include "lockstep/tokenizer/tokenizer.h"

#include "lockstep/base/error.h"
#include "lockstep/tokenizer/detail/model.h"
#include "lockstep/tokenizer/encoder.h"

namespace lockstep::tokenizer {
namespace {

Vocabulary checked(Vocabulary vocabulary, std::string_view place) {
  check_vocabulary(vocabulary, place);
  return vocabulary;
}

}  // namespace

Tokenizer::Tokenizer(Vocabulary vocabulary, std::string_view place)
    : model_(std::make_shared<const Model>(checked(std::move(vocabulary), place))) {}

std::vector<Token> Tokenizer::encode(std::string_view text, Special special) const {
  std::vector<Token> tokens;
  Encoder(*this).encode(text, special, tokens);
  return tokens;
}

std::string Tokenizer::decode(std::span<const Token> tokens) const {
  std::string bytes;
  for (const auto token : tokens) bytes += token_bytes(token);
  return bytes;
}

const std::string& Tokenizer::token_bytes(Token token) const {
  const auto& bytes = model_->vocabulary.bytes;
  if (token >= bytes.size() || bytes[token].empty()) {
    throw Error(Fault::config, "tokenizer: ", token,
                " is not a token of this vocabulary, which has ", bytes.size(),
                "; decode with the tokenizer that encoded");
  }
  return bytes[token];
}

std::size_t Tokenizer::size() const noexcept {
  return model_->vocabulary.bytes.size();
}

std::optional<Token> Tokenizer::end_of_text() const noexcept {
  return model_->end_of_text;
}

const Vocabulary& Tokenizer::vocabulary() const noexcept {
  return model_->vocabulary;
}

}  // namespace lockstep::tokenizer
