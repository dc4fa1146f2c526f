// The splitting into words, against what the pattern says.
#include "lockstep/tokenizer/detail/scanner.h"

#include "tests/support/support.h"

namespace lockstep::tokenizer {
namespace {

using ::testing::ElementsAre;

std::vector<std::string> words_of(std::string_view text) {
  static const Categories categories;
  std::vector<std::string> words;
  Scanner scanner(categories, text);
  while (!scanner.done()) words.emplace_back(scanner.next());
  return words;
}

TEST(Scanner, ABlankBelongsToTheWordBehindIt) {
  EXPECT_THAT(words_of("one two  three"), ElementsAre("one", " two", " ", " three"));
  EXPECT_THAT(words_of("a\n b"), ElementsAre("a", "\n", " b"));
  EXPECT_THAT(words_of("a \nb"), ElementsAre("a", " ", "\n", "b"));
  EXPECT_THAT(words_of("a\t\tb"), ElementsAre("a", "\t", "\t", "b"));
}

TEST(Scanner, SpacesAtTheEndAreOneWord) {
  EXPECT_THAT(words_of("a \n\t "), ElementsAre("a", " \n\t "));
  EXPECT_THAT(words_of(" "), ElementsAre(" "));
  EXPECT_THAT(words_of(""), ElementsAre());
}

TEST(Scanner, LettersNumbersAndOthersAreApart) {
  EXPECT_THAT(words_of("x86_64 is 1st!?"),
              ElementsAre("x", "86", "_", "64", " is", " 1", "st", "!?"));
}

TEST(Scanner, ContractionsAreWordsOfTheirOwn) {
  EXPECT_THAT(words_of("don't we're I'll he'd"),
              ElementsAre("don", "'t", " we", "'re", " I", "'ll", " he", "'d"));
  EXPECT_THAT(words_of("it'S 'tis !'s '"),
              ElementsAre("it", "'", "S", " '", "tis", " !'", "s", " '"));
  EXPECT_THAT(words_of("'l 'lx 'r"), ElementsAre("'", "l", " '", "lx", " '", "r"));
}

TEST(Scanner, OtherScriptsHaveTheirCategories) {
  EXPECT_THAT(words_of("日本 Ⅷ٣ é😀"), ElementsAre("日本", " Ⅷ٣", " é", "😀"));
  EXPECT_THAT(words_of("a\u00A0\u3000b"), ElementsAre("a", "\u00A0", "\u3000", "b"));
}

}  // namespace
}  // namespace lockstep::tokenizer
