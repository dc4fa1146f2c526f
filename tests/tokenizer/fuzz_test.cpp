// Damaged input of every reader: it works or is refused. Seeded, so that a failure
// comes again; tests/fuzz does the same without end.
#include <random>

#include "tests/support/damage.h"
#include "tests/tokenizer/support/fuzz_targets.h"
#include "tests/tokenizer/support/small.h"

namespace lockstep::test {
namespace {

const std::vector<std::string> kPieces = {"{",
                                          "}",
                                          "[",
                                          "]",
                                          ",",
                                          ":",
                                          "\"",
                                          "0",
                                          "-1",
                                          "1e9",
                                          "99999999999",
                                          "null",
                                          "a b",
                                          "\n",
                                          " ",
                                          "=",
                                          std::string("\0", 1),
                                          "\xFF",
                                          "\xC4\xA0",
                                          "true",
                                          "IQ== 5\n"};

void expect_refusals(const std::string& seed, int rounds,
                     bool (*target)(std::string_view)) {
  std::mt19937_64 random(20261116);
  EXPECT_TRUE(target(seed));  // undamaged
  int good = 0;
  for (int round = 0; round < rounds; ++round) {
    good += target(damaged(seed, kPieces, random)) ? 1 : 0;
  }
  EXPECT_LT(good, rounds);
}

TEST(TokenizerFuzz, DamagedTokenizerJson) {
  expect_refusals(tokenizer::tokenizer_json(small_tokenizer(270).vocabulary()), 400,
                  fuzz::tokenizer_json);
}

TEST(TokenizerFuzz, DamagedVocabAndMerges) {
  const auto vocabulary = small_tokenizer(270).vocabulary();
  expect_refusals(tokenizer::vocab_json(vocabulary) + std::string("\0", 1) +
                      tokenizer::merges_txt(vocabulary),
                  400, fuzz::vocab_and_merges);
}

TEST(TokenizerFuzz, DamagedChatTemplates) {
  expect_refusals("<{role}> \\ 'x' {content}\\n", 4000, fuzz::chat_template);
}

TEST(TokenizerFuzz, DamagedTiktokenFiles) {
  expect_refusals(all_bytes_tiktoken() + "dGg= 256\ndGhl 257\n", 400,
                  fuzz::tiktoken_file);
}

TEST(TokenizerFuzz, DamagedJsonLines) {
  expect_refusals("{\"text\": \"a\"}\n{\"text\": \"b\", \"n\": [1, 2]}\n", 2000,
                  fuzz::json_lines);
}

TEST(TokenizerFuzz, AnyBytesAreAText) {
  std::mt19937_64 random(1);
  for (int round = 0; round < 200; ++round) {
    fuzz::encode(
        damaged(kSmallText + "\xF0\x9F\x98\x80<|endoftext|>", kPieces, random));
  }
}

}  // namespace
}  // namespace lockstep::test
