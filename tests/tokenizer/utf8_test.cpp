#include "lockstep/tokenizer/detail/utf8.h"

#include "tests/support/support.h"

namespace lockstep::tokenizer {
namespace {

TEST(Utf8, InvalidBytesAreReplacedAsPythonDoes) {
  EXPECT_EQ(replace_invalid("a\xFFz"), "a\uFFFDz");
  EXPECT_EQ(replace_invalid("\xE2\x82"), "\uFFFD");  // cut off: one for both
  EXPECT_EQ(replace_invalid("\xE2\x82!"), "\uFFFD!");
  EXPECT_EQ(replace_invalid("\xC0\xAF"), "\uFFFD\uFFFD");            // overlong
  EXPECT_EQ(replace_invalid("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");  // a surrogate
  EXPECT_EQ(replace_invalid("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(replace_invalid("\xF0\x9F\x98"), "\uFFFD");
}

TEST(Utf8, ValidTextIsKept) {
  const std::string text = "plain ascii text, é 日本 😀";
  EXPECT_EQ(valid_prefix(text), text.size());
  EXPECT_EQ(replace_invalid(text), text);
  EXPECT_EQ(valid_prefix("eight by\xFFtes"), 8U);
}

}  // namespace
}  // namespace lockstep::tokenizer
