#include "lockstep/base/clock.h"

#include "tests/support/support.h"

namespace lockstep {
namespace {

TEST(Clock, AManualClockStandsStillUntilItIsMoved) {
  ManualClock clock;
  const auto before = clock.now();
  const auto wall = clock.wall();
  EXPECT_EQ(clock.now(), before);
  clock.advance(std::chrono::milliseconds(1500));
  EXPECT_DOUBLE_EQ(seconds_between(before, clock.now()), 1.5);
  EXPECT_DOUBLE_EQ(unix_seconds(clock.wall()) - unix_seconds(wall), 1.5);
}

TEST(Clock, IsoTimeIsUtcWithMilliseconds) {
  ManualClock clock;  // starts at 1,700,000,000 s
  clock.advance(std::chrono::milliseconds(7));
  EXPECT_EQ(iso_time(clock.wall()), "2023-11-14T22:13:20.007Z");
}

TEST(Clock, IsoTimeReadsBack) {
  ManualClock clock;
  clock.advance(std::chrono::milliseconds(86'399'999));
  EXPECT_EQ(parse_iso_time(iso_time(clock.wall())), clock.wall());
}

TEST(Clock, WhatIsNoIsoTimeIsRefused) {
  for (const auto* text : {"", "yesterday", "2023-11-14", "2023-11-14T22:13:20Z",
                           "2023-11-14T22:13:20.007", "2023-11-14T22:13:20.007Zx"}) {
    EXPECT_FALSE(parse_iso_time(text)) << text;
  }
}

TEST(Clock, TheSystemClockDoesNotGoBack) {
  const auto first = Clock::system().now();
  EXPECT_GE(Clock::system().now(), first);
  EXPECT_GT(unix_seconds(Clock::system().wall()), 1.7e9);
}

}  // namespace
}  // namespace lockstep
