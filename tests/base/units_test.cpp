#include "lockstep/base/units.h"

#include "tests/support/support.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;

TEST(Units, BytesKnowBothFamiliesOfUnits) {
  EXPECT_EQ(units::parse_bytes("512"), 512);
  EXPECT_EQ(units::parse_bytes("64kB"), 64'000);
  EXPECT_EQ(units::parse_bytes("25MB"), 25'000'000);
  EXPECT_EQ(units::parse_bytes("25 MiB"), 25 << 20);
  EXPECT_EQ(units::parse_bytes("1.5GiB"), 1610612736);
  EXPECT_EQ(units::parse_bytes("1e6"), 1'000'000);
  EXPECT_EQ(units::parse_bytes("2tib"), 2LL << 40);
}

TEST(Units, UnclearOrImpossibleBytesAreRefused) {
  for (const auto* word :
       {"", "25M", "25 X", "-1", "-1kB", "MB", "1.5.5GB", "1kB 2kB", "9e99TB", "nan"}) {
    EXPECT_FALSE(units::parse_bytes(word)) << "'" << word << "'";
  }
}

TEST(Units, DurationsAddUp) {
  EXPECT_EQ(units::parse_duration("250ms"), milliseconds(250));
  EXPECT_EQ(units::parse_duration("30s"), milliseconds(30'000));
  EXPECT_EQ(units::parse_duration("1.5"), milliseconds(1'500));
  EXPECT_EQ(units::parse_duration("5m"), milliseconds(300'000));
  EXPECT_EQ(units::parse_duration("1h30m"), milliseconds(5'400'000));
  EXPECT_EQ(units::parse_duration("1d 2h"), milliseconds(93'600'000));
  EXPECT_EQ(units::parse_duration("0"), milliseconds(0));
}

TEST(Units, WhatIsNoDurationIsRefused) {
  for (const auto* word : {"-1", "5 x", "h", "1h30", "nan", "inf", "1e300"}) {
    EXPECT_FALSE(units::parse_duration(word)) << "'" << word << "'";
  }
}

TEST(Units, ExactFormsReadBackToTheSameValue) {
  for (const std::int64_t bytes : {0L, 1L, 1500L, 1024L, 25L << 20, (1L << 40) + 1}) {
    EXPECT_EQ(units::parse_bytes(units::exact_bytes(bytes)), bytes)
        << units::exact_bytes(bytes);
  }
  for (const auto ms : {0, 1, 250, 90'000, 86'400'000}) {
    const milliseconds duration(ms);
    EXPECT_EQ(units::parse_duration(units::exact_duration(duration)), duration)
        << units::exact_duration(duration);
  }
  EXPECT_EQ(units::exact_bytes(25 << 20), "25MiB");
  EXPECT_EQ(units::exact_duration(milliseconds(90'000)), "90s");
}

TEST(Units, FormsForPeopleAreShort) {
  EXPECT_EQ(units::format_bytes(26214400), "25.0 MiB");
  EXPECT_EQ(units::format_bytes(1023), "1023 B");
  EXPECT_EQ(units::format_clock(std::chrono::seconds(5025)), "1:23:45");
  EXPECT_EQ(units::format_clock(std::chrono::seconds(83)), "01:23");
  EXPECT_EQ(units::format_rate(12.345), "12.3");
  EXPECT_EQ(units::format_rate(1234.5), "1,235");  // llround, away from zero
  EXPECT_EQ(units::format_rate(1234567), "1.23M");
}

// Times are added to clocks that count nanoseconds in 64 bits.
TEST(Units, NoDurationIsLongerThanAHundredYears) {
  EXPECT_TRUE(units::parse_duration("36500d"));
  EXPECT_FALSE(units::parse_duration("10000000d"));
  EXPECT_FALSE(units::parse_duration("1e300"));
}

}  // namespace
}  // namespace lockstep
