#include "lockstep/memory/find_micro.h"

#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::memory {
namespace {

// A model whose step takes `fixed` and `each` for every sample.
struct Takes {
  std::int64_t fixed = 0, each = 1;
  std::int64_t available = 1'000'000;

  MicroSearch search(std::int64_t most, double target) const {
    MicroSearch search({.most = most,
                        .free_bytes = available - fixed,
                        .target_bytes = static_cast<std::int64_t>(target * 1'000'000)});
    while (const auto size = search.next()) {
      EXPECT_GE(*size, 1);
      EXPECT_LE(*size, most);
      const auto peak = fixed + each * *size;
      const bool runs = peak <= available;
      const bool fits = runs && peak <= target * 1'000'000;
      search.observe({*size, fits, runs ? peak : 0});
      if (search.tries().size() > 20) break;
    }
    return search;
  }
};

TEST(MicroSearch, FindsTheLargestThatFitsInAFewTries) {
  for (const std::int64_t each : {100, 777, 3'000, 40'000, 300'000}) {
    const Takes model{.fixed = 100'000, .each = each};
    const auto search = model.search(100'000, 0.8);
    const auto best = (800'000 - 100'000) / each;
    EXPECT_LE(search.found(), best) << each;
    EXPECT_GE(search.found(), best - std::max<std::int64_t>(8, best / 8)) << each;
    EXPECT_LE(search.tries().size(), 8U) << each;
  }
}

TEST(MicroSearch, TheShareOfARankIsEnough) {
  const Takes model{.fixed = 1'000, .each = 10};
  const auto search = model.search(64, 0.8);
  EXPECT_EQ(search.found(), 64);
  EXPECT_EQ(search.tries().size(), 1U);
  EXPECT_EQ(model.search(1, 0.8).found(), 1);
}

TEST(MicroSearch, AShareThatDoesNotFitIsCut) {
  const Takes model{.fixed = 100'000, .each = 5'000};  // 140 fit
  const auto search = model.search(500, 0.8);
  EXPECT_LE(search.found(), 140);
  EXPECT_GE(search.found(), 128);
  EXPECT_LE(search.tries().size(), 8U);
}

TEST(MicroSearch, TheThirdTryIsSeventyPercentOfWhatIsFreeButAtMost512) {
  const Takes model{.fixed = 100'000, .each = 1'000};
  EXPECT_NEAR(static_cast<double>(model.search(10'000, 0.8).tries()[2].size), 0.7 * 900,
              8 + 0.7 * 900 - 512);
  const Takes heavy{.fixed = 100'000, .each = 10'000};
  EXPECT_NEAR(static_cast<double>(heavy.search(10'000, 0.8).tries()[2].size), 63, 8);
}

TEST(MicroSearch, WhatDoesNotFitAtAllIsZero) {
  const Takes model{.fixed = 900'000, .each = 10};
  EXPECT_EQ(model.search(64, 0.8).found(), 0);
}

}  // namespace
}  // namespace lockstep::memory
