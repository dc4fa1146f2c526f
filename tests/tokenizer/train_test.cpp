// The trainer by hand; oracle_test.cpp compares it with Hugging Face's.
#include "lockstep/tokenizer/train.h"

#include "tests/tokenizer/support/small.h"

namespace lockstep::tokenizer {
namespace {

using test::error_text;
using test::kSmallText;
using ::testing::HasSubstr;

std::vector<std::string> merged(const std::string& text, std::size_t merges,
                                std::uint64_t min_frequency = 0) {
  const auto vocabulary =
      train(count_words({text}, true, 1),
            {.vocab_size = 257 + merges, .min_frequency = min_frequency});
  std::vector<std::string> tokens;
  for (const auto& merge : vocabulary.merges) {
    tokens.push_back(vocabulary.bytes[merge.result]);
  }
  return tokens;
}

TEST(Train, TheMostFrequentPairIsMergedFirst) {
  EXPECT_EQ(merged("abc\nabc\nab", 2), (std::vector<std::string>{"ab", "abc"}));
  EXPECT_EQ(merged("aaaa aaaa", 2), (std::vector<std::string>{"aa", "aaaa"}));
}

TEST(Train, OfEqualPairsTheLowestIdsAreFirst) {
  EXPECT_EQ(merged("zy ba dc", 1), (std::vector<std::string>{"ba"}));
}

TEST(Train, RarePairsAreLeft) {
  EXPECT_EQ(merged("ab ab cd", 5, 2).size(), 1U);
  EXPECT_EQ(merged("ab", 5).size(), 1U);  // no more pairs
}

TEST(Train, LinesAreTextsOfTheirOwn) {
  // In one text the blank would go with the word: "\n", " b".
  const auto words = count_words({"a\n b \n"}, true, 1).words();
  EXPECT_EQ(words.count(" \n"), 1U);
  EXPECT_EQ(count_words({"a\n b \nc"}, false, 1).words().count(" \n"), 0U);
}

TEST(Train, ThreadsCountTheSame) {
  std::string text;
  while (text.size() < 9'000'000) text += kSmallText;
  EXPECT_EQ(count_words({text}, true, 3).words(), count_words({text}, true, 1).words());
}

TEST(Train, WhatCanNotBeIsRefused) {
  const auto words = count_words({"a b"}, true, 1);
  EXPECT_THAT(error_text(Fault::config, [&] { train(words, {.vocab_size = 256}); }),
              HasSubstr("256 has no room for the 256 bytes and the special tokens; ask "
                        "for at least 257"));
  EXPECT_THAT(error_text(Fault::config, [&] { train({}, {.vocab_size = 300}); }),
              HasSubstr("there is no text to train on"));
}

}  // namespace
}  // namespace lockstep::tokenizer
