// Encoding and decoding with a small vocabulary; tests/tokenizer/oracle_test.cpp
// compares GPT-2's with tiktoken and transformers.
#include "lockstep/tokenizer/tokenizer.h"

#include <random>

#include "lockstep/tokenizer/detail/word_merger.h"
#include "lockstep/tokenizer/parallel.h"
#include "tests/tokenizer/support/small.h"

namespace lockstep::tokenizer {
namespace {

using test::error_text;
using test::kSmallText;
using test::small_tokenizer;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::string random_bytes(std::mt19937_64& random, std::size_t size) {
  static const std::string kCommon = "the an is' \n\t01é日😀\xFF";
  std::string text;
  for (std::size_t i = 0; i < size; ++i) {
    const auto number = random();
    text += number % 4 != 0 ? kCommon[(number >> 8) % kCommon.size()]
                            : static_cast<char>(number >> 32);
  }
  return text;
}

TEST(Tokenizer, TextComesBack) {
  const auto tokenizer = small_tokenizer();
  for (const std::string text :
       {"", "t", "the theme", "日本語 and é\n\n  x", "\x01\x02"}) {
    EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  }
  EXPECT_LT(tokenizer.encode("the").size(), 3U);
}

TEST(Tokenizer, InvalidBytesBecomeTheReplacementCharacter) {
  const auto tokenizer = small_tokenizer();
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("a\xFF")), "a\uFFFD");
}

TEST(Tokenizer, SpecialTokensAreRefusedUnlessAllowed) {
  const auto tokenizer = small_tokenizer();
  const auto text = "the<|endoftext|> the";
  EXPECT_THAT(
      error_text(Fault::config, [&] { tokenizer.encode(text); }),
      HasSubstr("contains the special token '<|endoftext|>' at byte 3; remove it"));
  const auto allowed = tokenizer.encode(text, Special::allow);
  EXPECT_EQ(std::count(allowed.begin(), allowed.end(), *tokenizer.end_of_text()), 1);
  const auto as_text = tokenizer.encode(text, Special::as_text);
  EXPECT_EQ(std::count(as_text.begin(), as_text.end(), *tokenizer.end_of_text()), 0);
  EXPECT_EQ(tokenizer.decode(allowed), text);
  EXPECT_EQ(tokenizer.decode(as_text), text);
}

TEST(Tokenizer, ARefusedTextLeavesTheTokensAsTheyWere) {
  Encoder encoder(small_tokenizer());
  std::vector<Token> tokens = {7};
  EXPECT_THROW(encoder.encode("the<|endoftext|>", Special::refuse, tokens), Error);
  EXPECT_THAT(tokens, ElementsAre(7U));
}

TEST(Tokenizer, OfAddedTokensTheLongestMatches) {
  auto vocabulary = small_tokenizer().vocabulary();
  for (const auto* text : {"<a>", "<a>b", "plain"}) {
    const auto id = static_cast<Token>(vocabulary.bytes.size());
    vocabulary.bytes.emplace_back(text);
    vocabulary.added.push_back({text, id, text != std::string("plain")});
  }
  const Tokenizer tokenizer(vocabulary);
  EXPECT_THAT(tokenizer.encode("<a>b<a>", Special::allow), ElementsAre(301U, 300U));
  // One that is not special is matched whatever is asked for.
  EXPECT_THAT(tokenizer.encode("plain", Special::as_text), ElementsAre(302U));
  EXPECT_THAT(tokenizer.encode("plain", Special::refuse), ElementsAre(302U));
}

TEST(Tokenizer, ANumberThatIsNoTokenIsRefused) {
  const auto tokenizer = small_tokenizer();
  const std::vector<Token> tokens = {300};
  EXPECT_THAT(error_text(Fault::config, [&] { tokenizer.decode(tokens); }),
              HasSubstr("300 is not a token of this vocabulary, which has 300"));
}

// The same word by the scan of short words and by the heap of long ones.
TEST(Tokenizer, LongWordsAreMergedAsShortOnes) {
  const auto tokenizer = small_tokenizer(400);
  const MergeTable table(tokenizer.vocabulary().merges);
  std::mt19937_64 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string word;
    while (word.size() < 97 + random() % 200) word += "thermostat"[random() % 10];
    // Quadratic, as the definition says it: the lowest rank first, the leftmost first.
    std::vector<Token> parts;
    for (const char c : word) {
      parts.push_back(
          tokenizer.vocabulary().byte_tokens[static_cast<unsigned char>(c)]);
    }
    while (true) {
      MergeTable::Found best;
      std::size_t at = 0;
      for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
        const auto found = table.find(parts[i], parts[i + 1]);
        if (found.rank < best.rank) best = found, at = i;
      }
      if (best.rank == kNoRank) break;
      parts[at] = best.result;
      parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    }
    EXPECT_EQ(tokenizer.encode(word), parts) << word;
  }
}

TEST(Tokenizer, ARunOfAMillionIsNoProblem) {
  const auto tokenizer = small_tokenizer();
  const std::string run(1'000'000, 't');
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(run)), run);
}

TEST(Tokenizer, TheCacheChangesNothing) {
  const auto tokenizer = small_tokenizer(500);
  std::mt19937_64 random(20261116);
  Encoder encoder(tokenizer);
  std::vector<Token> tokens;
  encoder.encode(std::string(4096, ' '), Special::refuse, tokens);  // now it has one
  for (int round = 0; round < 2000; ++round) {
    const auto text = random_bytes(random, random() % 60);
    tokens.clear();
    encoder.encode(text, Special::refuse, tokens);
    EXPECT_EQ(tokens, tokenizer.encode(text));
  }
}

TEST(Tokenizer, CutTextHasTheSameTokens) {
  const auto tokenizer = small_tokenizer(500);
  std::mt19937_64 random(5);
  for (int round = 0; round < 300; ++round) {
    const auto text = random_bytes(random, random() % 400);
    std::vector<Token> tokens;
    std::string together;
    for (const auto piece : cut(tokenizer, text, 1 + random() % 50)) {
      const auto part = tokenizer.encode(piece);
      tokens.insert(tokens.end(), part.begin(), part.end());
      together += piece;
    }
    EXPECT_EQ(together, text);
    EXPECT_EQ(tokens, tokenizer.encode(text));
  }
}

TEST(Tokenizer, SeveralThreadsGiveTheSameTokens) {
  const auto tokenizer = small_tokenizer(500);
  std::string text;
  std::mt19937_64 random(6);
  while (text.size() < 3'000'000) text += kSmallText + random_bytes(random, 50);
  const auto alone = ParallelEncoder(tokenizer, 1).encode(text, Special::refuse);
  EXPECT_EQ(ParallelEncoder(tokenizer, 3).encode(text, Special::refuse), alone);
  EXPECT_EQ(tokenizer.encode(text), alone);
}

}  // namespace
}  // namespace lockstep::tokenizer
