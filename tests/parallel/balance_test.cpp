#include "lockstep/parallel/balance.h"

#include "tests/support/support.h"

namespace lockstep::parallel {
namespace {

TEST(Balance, SharesFollowTheSpeed) {
  Balance balance(3);
  // The second is three times as fast as the others.
  const auto weights = balance.observe({3, 1, 3}, {90, 90, 90});
  ASSERT_TRUE(weights.has_value());
  EXPECT_NEAR((*weights)[0], Balance::kWhole / 5, 1);
  EXPECT_NEAR((*weights)[1], Balance::kWhole * 3 / 5, 1);
  EXPECT_EQ(balance.weights(), *weights);
}

TEST(Balance, NoiseChangesNothing) {
  Balance balance(2);
  EXPECT_FALSE(balance.observe({1.0, 1.04}, {100, 100}).has_value());
  EXPECT_FALSE(balance.observe({1.04, 1.0}, {100, 100}).has_value());
}

// With the shares that it chose, all ranks take equally long, and it leaves them alone.
TEST(Balance, Settles) {
  Balance balance(2);
  std::vector<double> samples{64, 64};
  int changes = 0;
  for (int window = 0; window < 20; ++window) {
    const std::vector<double> seconds{samples[0] * 0.001, samples[1] * 0.003};
    if (const auto weights = balance.observe(seconds, samples)) {
      changes += 1;
      const auto sum = static_cast<double>((*weights)[0] + (*weights)[1]);
      for (std::size_t r = 0; r < 2; ++r) {
        samples[r] = 128 * static_cast<double>((*weights)[r]) / sum;
      }
    }
  }
  EXPECT_EQ(changes, 1);
  EXPECT_NEAR(samples[0], 96, 1);
}

TEST(Balance, ARankKeepsEnoughToBeMeasuredAgain) {
  Balance balance(2);
  const auto weights = balance.observe({1, 1000}, {100, 100});
  ASSERT_TRUE(weights.has_value());
  EXPECT_GE((*weights)[1], Balance::kWhole / 20 - 1);
}

TEST(Balance, ARankThatHasNotBeenMeasuredDecidesNothing) {
  Balance balance(2);
  EXPECT_FALSE(balance.observe({1, 0}, {100, 0}).has_value());
  EXPECT_TRUE(balance.observe({1, 3}, {100, 100}).has_value());
}

}  // namespace
}  // namespace lockstep::parallel
