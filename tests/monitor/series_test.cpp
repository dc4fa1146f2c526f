#include "lockstep/monitor/series.h"

#include <limits>

#include "tests/support/support.h"

namespace lockstep {
namespace {

using monitor::Series;

TEST(SeriesStats, OfNothingAreZero) {
  EXPECT_EQ(Series(4).stats().count, 0);
  EXPECT_EQ(Series(4).recent_mean(3), 0);
}

TEST(SeriesStats, MeanAndExtremesAreOfAllPercentilesOfTheKept) {
  Series series(100);
  for (int i = 1; i <= 1000; ++i) series.add(i);
  const auto stats = series.stats();
  EXPECT_EQ(stats.count, 1000);
  EXPECT_EQ(stats.mean, 500.5);
  EXPECT_EQ(stats.min, 1);
  EXPECT_EQ(stats.max, 1000);
  EXPECT_EQ(stats.p50, 950);  // of 901 ... 1000
  EXPECT_EQ(stats.p95, 995);
  EXPECT_EQ(stats.p99, 999);
  EXPECT_EQ(series.last(), 1000);
}

TEST(SeriesStats, OfOneValueAreThatValue) {
  Series series(3);
  series.add(-7);
  const auto stats = series.stats();
  for (const double value : {stats.mean, stats.min, stats.max, stats.p50, stats.p99}) {
    EXPECT_EQ(value, -7);
  }
}

TEST(SeriesStats, RecentMeansWrapAround) {
  Series series(3);
  for (const double value : {1.0, 2.0, 3.0, 4.0}) series.add(value);
  EXPECT_EQ(series.recent_mean(2), 3.5);
  EXPECT_EQ(series.recent_mean(3), 3);
  EXPECT_EQ(series.recent_mean(9), 3);
}

TEST(SeriesStats, WhatIsNotFiniteDoesNotCount) {
  Series series(3);
  series.add(std::numeric_limits<double>::quiet_NaN());
  series.add(std::numeric_limits<double>::infinity());
  series.add(2);
  EXPECT_EQ(series.stats().count, 1);
  EXPECT_EQ(series.stats().mean, 2);
}

}  // namespace
}  // namespace lockstep
