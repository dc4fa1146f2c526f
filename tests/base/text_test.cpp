#include "lockstep/base/text.h"

#include <bit>
#include <cmath>
#include <limits>

#include "tests/support/support.h"

namespace lockstep {
namespace {

TEST(Text, SplitKeepsEmptyParts) {
  EXPECT_THAT(text::split("a,,b,", ','), ::testing::ElementsAre("a", "", "b", ""));
  EXPECT_THAT(text::split("", ','), ::testing::ElementsAre(""));
}

TEST(Text, JoinIsSplitBackwards) {
  const std::vector<std::string> parts{"x", "", "yz"};
  EXPECT_EQ(text::join(parts, ","), "x,,yz");
  EXPECT_EQ(text::split(text::join(parts, ","), ','), parts);
}

TEST(Text, TrimTakesSpaceFromBothEnds) {
  EXPECT_EQ(text::trim(" \t a b\r\n"), "a b");
  EXPECT_EQ(text::trim(" \n "), "");
}

TEST(Text, LowerLeavesOtherLettersAlone) {
  EXPECT_EQ(text::lower("AbC-\xC3\x84"), "abc-\xC3\x84");
}

TEST(Text, IntegersMayBeWrittenAsPeopleDo) {
  EXPECT_EQ(text::to_integer("42"), 42);
  EXPECT_EQ(text::to_integer("-7"), -7);
  EXPECT_EQ(text::to_integer("+7"), 7);
  EXPECT_EQ(text::to_integer("1e3"), 1000);
  EXPECT_EQ(text::to_integer("5.0"), 5);
  EXPECT_EQ(text::to_integer("9223372036854775807"), 9223372036854775807);
}

TEST(Text, WhatIsNoIntegerIsRefused) {
  for (const auto* word : {"", "1.5", "x", "12x", " 1", "1 ", "0x10", "1e400", "nan",
                           "99999999999999999999", "--1", "+"}) {
    EXPECT_FALSE(text::to_integer(word)) << "'" << word << "'";
  }
}

TEST(Text, DoublesAreParsedWholeOrNotAtAll) {
  EXPECT_EQ(text::to_double("3e-4"), 3e-4);
  EXPECT_EQ(text::to_double("+.5"), 0.5);
  for (const auto* word : {"", "1,5", "1e", "0.5x", " 1"}) {
    EXPECT_FALSE(text::to_double(word)) << "'" << word << "'";
  }
}

TEST(Text, ADoubleReadsBackToTheSameBits) {
  for (const double value :
       {0.1, 1.0 / 3.0, 1e-8, 6.02214076e23, std::numeric_limits<double>::denorm_min(),
        std::numeric_limits<double>::max(), std::nextafter(1.0, 2.0), -0.0}) {
    const auto back = text::to_double(text::from_double(value));
    ASSERT_TRUE(back) << text::from_double(value);
    EXPECT_EQ(std::bit_cast<std::uint64_t>(*back), std::bit_cast<std::uint64_t>(value))
        << text::from_double(value);
  }
}

TEST(Text, DistanceCountsASwapOfNeighboursOnce) {
  EXPECT_EQ(text::distance("", "abc"), 3U);
  EXPECT_EQ(text::distance("kitten", "sitting"), 3U);
  EXPECT_EQ(text::distance("trian", "train"), 1U);
  EXPECT_EQ(text::distance("same", "same"), 0U);
}

TEST(Text, SuggestsTheClosestWord) {
  const std::vector<std::string> keys{"optim.lr", "optim.name", "train.steps"};
  EXPECT_EQ(text::closest("optim.rl", keys), "optim.lr");
  EXPECT_EQ(text::closest("OPTIM.LR", keys), "optim.lr");
  EXPECT_EQ(text::closest("train.ste", keys), "train.steps");
  EXPECT_EQ(text::did_you_mean("optim.nam", keys), "; did you mean 'optim.name'?");
}

TEST(Text, SuggestsNothingWhenItWouldBeACoinToss) {
  const std::vector<std::string> keys{"batch.global", "batch.micro", "cpu"};
  EXPECT_EQ(text::closest("batch", keys), std::nullopt);  // the beginning of two
  EXPECT_EQ(text::closest("entirely else", keys), std::nullopt);
  EXPECT_EQ(text::closest("gpx", keys), std::nullopt);  // short words allow one edit
  EXPECT_EQ(text::did_you_mean("zzzzzz", keys), "");
}

TEST(Text, FindsTheFirstByteThatIsNotUtf8) {
  EXPECT_EQ(text::first_invalid_utf8("plain \xC3\xA4 \xE2\x82\xAC \xF0\x9F\x98\x80"),
            std::nullopt);
  EXPECT_EQ(text::first_invalid_utf8("ab\xFF"), 2U);
  EXPECT_EQ(text::first_invalid_utf8("a\xC3"), 1U);             // cut off
  EXPECT_EQ(text::first_invalid_utf8("\xC0\xAF"), 0U);          // overlong
  EXPECT_EQ(text::first_invalid_utf8("\xED\xA0\x80"), 0U);      // surrogate
  EXPECT_EQ(text::first_invalid_utf8("\xF4\x90\x80\x80"), 0U);  // beyond Unicode
}

TEST(Text, ColumnsCountCharactersNotBytes) {
  EXPECT_EQ(text::columns("abc"), 3U);
  EXPECT_EQ(text::columns("\xC3\xA4\xE2\x82\xAC"), 2U);
}

TEST(Text, TableAlignsColumnsAndLeavesNoSpaceAtLineEnds) {
  EXPECT_EQ(text::table({{"NAME", "N"}, {"a", "12"}, {"long", "3"}}, {1}),
            "NAME   N\n"
            "a     12\n"
            "long   3\n");
  EXPECT_EQ(text::table({{"a", ""}, {"b", ""}}), "a\nb\n");
}

TEST(Text, CommasStandBetweenThousands) {
  EXPECT_EQ(text::with_commas(0), "0");
  EXPECT_EQ(text::with_commas(999), "999");
  EXPECT_EQ(text::with_commas(1234567), "1,234,567");
  EXPECT_EQ(text::with_commas(-1234), "-1,234");
  EXPECT_EQ(text::with_commas(-123), "-123");
}

}  // namespace
}  // namespace lockstep
