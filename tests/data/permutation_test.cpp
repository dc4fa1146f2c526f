#include "lockstep/data/permutation.h"

#include <cmath>
#include <cstdint>
#include <set>
#include <vector>

#include "tests/support/support.h"

namespace lockstep::data {
namespace {

std::vector<std::uint64_t> order_of(std::uint64_t n, std::uint64_t seed,
                                    std::uint64_t epoch) {
  const Permutation permutation(n, seed, epoch);
  std::vector<std::uint64_t> order;
  for (std::uint64_t i = 0; i < n; ++i) order.push_back(permutation(i));
  return order;
}

TEST(Permutation, VisitsEachSampleExactlyOnce) {
  for (const std::uint64_t n : {1, 2, 3, 4, 5, 7, 16, 17, 1000, 1024, 1025, 60000}) {
    const auto order = order_of(n, 42, 3);
    const std::set<std::uint64_t> seen(order.begin(), order.end());
    EXPECT_EQ(seen.size(), n);
    EXPECT_EQ(*seen.rbegin(), n - 1);
  }
}

TEST(Permutation, DependsOnSeedAndEpoch) {
  const auto order = order_of(1000, 42, 0);
  EXPECT_NE(order, order_of(1000, 43, 0));
  EXPECT_NE(order, order_of(1000, 42, 1));
  EXPECT_EQ(order, order_of(1000, 42, 0));
}

// Stored positions rely on these values: if this fails, resumed runs see other samples.
TEST(Permutation, NeverChangesBetweenVersions) {
  EXPECT_THAT(order_of(10, 42, 0), testing::ElementsAre(0, 1, 9, 3, 5, 4, 8, 6, 7, 2));
  const Permutation large(1'000'000'000'000, 7, 5);
  EXPECT_EQ(large(0), 8352240802U);
  EXPECT_EQ(large(999'999'999'999), 534321625654U);
}

TEST(Permutation, LooksShuffled) {
  // Neighbours of a random order are n/3 apart on average; an order that keeps runs
  // together is far below.
  const auto order = order_of(60000, 42, 0);
  double total = 0;
  std::int64_t fixed = 0;
  for (std::size_t i = 0; i + 1 < order.size(); ++i) {
    total +=
        std::abs(static_cast<double>(order[i + 1]) - static_cast<double>(order[i]));
    fixed += order[i] == i ? 1 : 0;
  }
  EXPECT_NEAR(total / 60000, 20000, 400);  // deviation of the mean: about 60
  EXPECT_LT(fixed, 10);                    // one is expected
}

}  // namespace
}  // namespace lockstep::data
