#pragma once

#include <string>
#include <string_view>

#include <stdlib.h>

#include "lockstep/base/error.h"
#include "lockstep/tokenizer/chat_template.h"
#include "lockstep/tokenizer/detail/formats.h"
#include "lockstep/tokenizer/detail/utf8.h"
#include "lockstep/tokenizer/documents.h"
#include "lockstep/tokenizer/encoder.h"
#include "lockstep/tokenizer/files.h"
#include "lockstep/tokenizer/train.h"

// What is done with bytes that may be anything. True: they were taken for good; any
// error but Error(Fault::io) or Error(Fault::config) is a finding.
namespace lockstep::fuzz {

template <typename Body>
bool is_taken(const Body& body) {
  try {
    body();
    return true;
  } catch (const Error& error) {
    if (error.fault() != Fault::io && error.fault() != Fault::config) abort();
    return false;
  }
}

// A vocabulary that was taken must work and be written.
inline void use(tokenizer::Vocabulary vocabulary) {
  const tokenizer::Tokenizer read(std::move(vocabulary), "x");
  const std::string text = "the 12 \n\xC3\xA9 theme!";
  const auto tokens = read.encode(text, tokenizer::Special::as_text);
  if (read.decode(tokens) != text) abort();
  static_cast<void>(tokenizer::tokenizer_json(read.vocabulary()));
}

inline bool tiktoken_file(std::string_view bytes) {
  return is_taken([&] { use(tokenizer::parse_tiktoken(bytes, "x")); });
}

inline bool tokenizer_json(std::string_view bytes) {
  return is_taken([&] { use(tokenizer::parse_tokenizer_json(bytes, "x")); });
}

// vocab.json, a zero byte, merges.txt.
inline bool vocab_and_merges(std::string_view bytes) {
  const auto end = std::min(bytes.find('\0'), bytes.size());
  const auto rest = std::min(end + 1, bytes.size());
  return is_taken([&] {
    use(tokenizer::parse_vocab_and_merges(
        {bytes.substr(0, end), bytes.substr(rest), "vocab", "merges"}));
  });
}

// Any bytes are a text: decoding gives back what is valid of it. And any text is one to
// train on: the second encoder has a vocabulary of its own.
inline bool encode(std::string_view bytes) {
  const auto words = tokenizer::count_words({bytes, "x"}, true, 1);
  const tokenizer::Tokenizer made(tokenizer::train(words, {.vocab_size = 300}));
  tokenizer::Encoder cached(made);
  std::vector<tokenizer::Token> tokens;
  cached.encode(std::string(4096, ' '), tokenizer::Special::allow, tokens);
  tokens.clear();
  cached.encode(bytes, tokenizer::Special::as_text, tokens);
  if (tokens != made.encode(bytes, tokenizer::Special::as_text)) abort();
  if (made.decode(tokens) != tokenizer::replace_invalid(bytes)) abort();
  return is_taken([&] { made.encode(bytes); });
}

// A template of ours comes back as the same Jinja; any bytes with {content} are one.
inline bool chat_template(std::string_view bytes) {
  if (const auto text = tokenizer::from_jinja(bytes)) {
    if (tokenizer::to_jinja(*text) != bytes) abort();
  }
  return is_taken([&] {
    const auto back = tokenizer::from_jinja(tokenizer::to_jinja(bytes));
    if (!back || tokenizer::to_jinja(*back) != tokenizer::to_jinja(bytes)) abort();
  });
}

inline bool json_lines(std::string_view bytes) {
  tokenizer::JsonLine line;
  return is_taken([&] {
    while (tokenizer::next_json_line(bytes, line)) {
      static_cast<void>(tokenizer::text_of_line(line.text, "text", "x"));
    }
  });
}

}  // namespace lockstep::fuzz
