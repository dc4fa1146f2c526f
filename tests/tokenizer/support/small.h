#pragma once

#include <cstdlib>
#include <string>

#include "lockstep/tokenizer/tokenizer.h"
#include "lockstep/tokenizer/train.h"
#include "tests/support/support.h"

namespace lockstep::test {

inline const std::string kSmallText =
    "the theme of the thesis is that the other bathe there\n"
    "don't can't won't it's we're they've I'll\n"
    "in 1984 and 2001, 12345 numbers -- and == signs\n";

// A tokenizer of 300 tokens, made here: 0 is <|endoftext|>, then the bytes by letter.
inline tokenizer::Tokenizer small_tokenizer(std::size_t size = 300) {
  const auto words = tokenizer::count_words({kSmallText}, true, 1);
  return tokenizer::Tokenizer(tokenizer::train(words, {.vocab_size = size}));
}

inline std::string base64(const std::string& bytes) {
  const std::string digits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t bits = 0;
    for (std::size_t k = 0; k < 3; ++k) {
      bits = bits << 8 |
             (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0U);
    }
    for (std::size_t k = 0; k < 4; ++k) {
      text += i + k > bytes.size() ? '=' : digits[bits >> (18 - 6 * k) & 63];
    }
  }
  return text;
}

// The least .tiktoken file: the byte b has the rank b.
inline std::string all_bytes_tiktoken() {
  std::string text;
  for (int byte = 0; byte < 256; ++byte) {
    text += base64(std::string(1, static_cast<char>(byte))) + " " +
            std::to_string(byte) + "\n";
  }
  return text;
}

// GPT-2's vocabulary, where scripts/setup.sh --oracle or the environment has put it.
inline Path gpt2_file() {
  if (const char* named = std::getenv("LOCKSTEP_GPT2_VOCAB")) return named;
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const Path base = cache != nullptr  ? Path(cache)
                    : home != nullptr ? Path(home) / ".cache"
                                      : Path();
  return base / "lockstep/gpt2/gpt2.tiktoken";
}

}  // namespace lockstep::test

#define LOCKSTEP_NEEDS_GPT2()                                                  \
  if (!std::filesystem::exists(::lockstep::test::gpt2_file())) {               \
    GTEST_SKIP() << "no GPT-2 vocabulary in " << ::lockstep::test::gpt2_file() \
                 << "; scripts/get_gpt2_vocab.sh fetches it";                  \
  }
