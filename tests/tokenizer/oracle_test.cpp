// The same tokens as tiktoken and transformers, the same merges as Hugging Face's
// trainer. benchmarks/tokenizer_difference.py does the first over 50 MB.
#include "tests/support/oracle.h"

#include <random>

#include "lockstep/base/files.h"
#include "lockstep/tokenizer/detail/utf8.h"
#include "lockstep/tokenizer/encoder.h"
#include "lockstep/tokenizer/files.h"
#include "tests/tokenizer/support/small.h"

namespace lockstep::tokenizer {
namespace {

std::string length_prefix(std::size_t size) {
  const auto length = static_cast<std::uint32_t>(size);
  return {reinterpret_cast<const char*>(&length), sizeof length};
}

// Encodes all texts and asks the oracle.
void expect_same_tokens(const std::vector<std::string>& texts, Special special) {
  const files::TemporaryDirectory folder;
  const auto tokenizer = Tokenizer::load(test::gpt2_file());
  save(tokenizer, folder.path() / "gpt2");
  Encoder encoder(tokenizer);
  std::string all_texts, all_tokens;
  std::vector<Token> tokens;
  for (const auto& text : texts) {
    tokens.clear();
    encoder.encode(text, special, tokens);
    all_texts += length_prefix(text.size()) + text;
    all_tokens += length_prefix(tokens.size());
    all_tokens.append(reinterpret_cast<const char*>(tokens.data()),
                      tokens.size() * sizeof(Token));
  }
  test::write_file(folder.path() / "texts", all_texts);
  test::write_file(folder.path() / "tokens", all_tokens);
  test::expect_oracle_agrees(
      "tokenizer_encode.py",
      {test::gpt2_file(), folder.path() / "gpt2", folder.path() / "texts",
       folder.path() / "tokens", special == Special::allow ? "allow" : "text"});
}

std::vector<std::string> sources() {
  std::vector<std::string> texts;
  for (const auto* name : {"README.md", "CHANGELOG.md", "docs/architecture.md",
                           "lockstep/tokenizer/encoder.cpp", "scripts/setup.sh",
                           "docs/reference/config.md", "tests/cli/help.txt"}) {
    texts.push_back(test::read_file(test::source_root() / name));
  }
  return texts;
}

// Thousands of code points in one text, each between the same neighbours.
TEST(TokenizerOracle, EveryCodePointInSeveralContexts) {
  LOCKSTEP_NEEDS_ORACLE();
  LOCKSTEP_NEEDS_GPT2();
  std::vector<std::string> texts;
  const std::vector<std::pair<std::string, std::string>> contexts = {
      {"a", "b"}, {" ", " "}, {"1", "\n"}, {"!", "'s"}, {"  ", "2"}};
  std::size_t number = 0;
  for (char32_t code = 0; code < 0x110000; code += 512) {
    const auto& [before, after] = contexts[number++ % contexts.size()];
    std::string text;
    for (char32_t c = code; c < code + 512; ++c) {
      if (c >= 0xD800 && c < 0xE000) continue;
      text += before;
      append_utf8(text, c);
      text += after;
    }
    texts.push_back(text);
  }
  expect_same_tokens(texts, Special::as_text);
}

TEST(TokenizerOracle, RandomBytes) {
  LOCKSTEP_NEEDS_ORACLE();
  LOCKSTEP_NEEDS_GPT2();
  std::mt19937_64 random(20261116);
  std::vector<std::string> texts;
  const std::string common =
      "etaoin shrdlu '\n\t  stremvl0123456789.,\xC3\xA9\xE2\x82\xAC";
  for (int i = 0; i < 5000; ++i) {
    std::string text;
    const auto size = random() % 80;
    const auto wild = random() % 8;
    while (text.size() < size) {
      text += random() % 8 < wild ? static_cast<char>(random())
                                  : common[random() % common.size()];
    }
    texts.push_back(text);
  }
  expect_same_tokens(texts, Special::as_text);
}

TEST(TokenizerOracle, TextsRunsAndSpecialTokens) {
  LOCKSTEP_NEEDS_ORACLE();
  LOCKSTEP_NEEDS_GPT2();
  auto texts = sources();
  for (const auto* piece : {"a", " ", "\n", "=-", "é", "日", "ab ", "'s", "0", "\t "}) {
    std::string run;
    while (run.size() < 5000) run += piece;
    texts.push_back(run);
  }
  expect_same_tokens(texts, Special::as_text);
  texts.push_back("<|endoftext|>");
  texts.push_back("one<|endoftext|><|endoftext|> two <|endoftext|>  <|endoftext|\n");
  expect_same_tokens(texts, Special::allow);
}

class TrainOracle : public ::testing::Test {
 protected:
  void expect_same_merges(std::size_t size, std::uint64_t min_frequency,
                          const WordCounts& words, const std::string& file) {
    const auto to = folder_.path() / std::to_string(size);
    save(Tokenizer(train(words, {.vocab_size = size, .min_frequency = min_frequency})),
         to);
    test::expect_oracle_agrees("tokenizer_train.py",
                               {to, std::to_string(size), std::to_string(min_frequency),
                                folder_.path() / file});
  }
  files::TemporaryDirectory folder_;
};

TEST_F(TrainOracle, MergesOfTexts) {
  LOCKSTEP_NEEDS_ORACLE();
  std::string text;
  for (const auto& source : sources()) text += source;
  test::write_file(folder_.path() / "x.txt", text);
  const auto words = count_words({text}, true, 2);
  expect_same_merges(300, 0, words, "x.txt");
  expect_same_merges(2000, 0, words, "x.txt");
  expect_same_merges(8000, 2, words, "x.txt");
}

// All pairs, down to those that occur once: ties everywhere, and tokens that two
// different merges make.
TEST_F(TrainOracle, MergesOfFewLettersUntilNoneAreLeft) {
  LOCKSTEP_NEEDS_ORACLE();
  std::mt19937_64 random(11);
  std::string text;
  for (int i = 0; i < 4000; ++i) text += "aab b\nc"[random() % 7];
  test::write_file(folder_.path() / "x.txt", text);
  expect_same_merges(100'000, 0, count_words({text}, true, 1), "x.txt");
}

TEST_F(TrainOracle, MergesOfJsonLines) {
  LOCKSTEP_NEEDS_ORACLE();
  test::write_file(folder_.path() / "x.jsonl",
                   "{\"text\": \"one \\n two  \\n three\"}\n{\"text\": \"one two\"}\n");
  const auto words = count_words({"one \n two  \n three", "one two"}, false, 1);
  expect_same_merges(280, 0, words, "x.jsonl");
}

}  // namespace
}  // namespace lockstep::tokenizer
