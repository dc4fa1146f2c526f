#include "lockstep/train/early_stop.h"

#include <limits>

#include "tests/support/support.h"

namespace lockstep::train {
namespace {

using testing::HasSubstr;

const task::Primary kLoss{"loss", task::Better::less};

task::Means loss_of_eval(double loss) {
  return {loss, {{"accuracy", 1 - loss}}, 1};
}

TEST(EarlyStop, EndsAfterSoManyEvaluationsWithoutABetterOne) {
  EarlyStop stop({.patience = 2, .min_delta = 0.1}, kLoss);
  EXPECT_TRUE(stop.observe(loss_of_eval(1.0)));
  EXPECT_FALSE(stop.observe(loss_of_eval(0.95))) << "not by more than min_delta";
  EXPECT_FALSE(stop.is_over());
  EXPECT_TRUE(stop.observe(loss_of_eval(0.8)));
  EXPECT_FALSE(stop.observe(loss_of_eval(0.9)));
  EXPECT_FALSE(stop.is_over());
  EXPECT_FALSE(stop.observe(loss_of_eval(std::numeric_limits<double>::quiet_NaN())));
  EXPECT_TRUE(stop.is_over());
  EXPECT_EQ(stop.best(), 0.8);
  EXPECT_THAT(stop.because(),
              HasSubstr("loss has not improved by more than 0.1 on 0.8"));
}

TEST(EarlyStop, MoreIsBetterOfAllThatIsNoCost) {
  EarlyStop accuracy({.metric = "accuracy"}, kLoss);
  accuracy.observe(loss_of_eval(0.5));
  EXPECT_TRUE(accuracy.observe(loss_of_eval(0.4)));
  EarlyStop forced({.metric = "accuracy", .mode = config::BetterMode::min}, kLoss);
  forced.observe(loss_of_eval(0.5));
  EXPECT_FALSE(forced.observe(loss_of_eval(0.4)));
}

TEST(EarlyStop, WithoutPatienceItOnlyRemembersTheBest) {
  EarlyStop stop({.patience = 0}, kLoss);
  stop.observe(loss_of_eval(0.5));
  for (int i = 0; i < 100; ++i) stop.observe(loss_of_eval(0.6));
  EXPECT_FALSE(stop.is_over());
}

TEST(EarlyStop, AMetricThatIsNotThereIsNamedWithThoseThatAre) {
  EarlyStop stop({.metric = "f1"}, kLoss);
  EXPECT_THAT(test::error_text(Fault::config, [&] { stop.observe(loss_of_eval(1)); }),
              HasSubstr("there are loss, accuracy"));
}

TEST(EarlyStop, GoesOnWhereACheckpointLeftIt) {
  EarlyStop stop({.patience = 3}, kLoss);
  stop.restore(0.5, 2);
  EXPECT_FALSE(stop.is_over());
  stop.observe(loss_of_eval(0.6));
  EXPECT_TRUE(stop.is_over());
}

TEST(Divergence, GoesOnWhereACheckpointLeftIt) {
  Divergence whole(1.5), first(1.5);
  for (const double loss : {2.0, 1.0, 1.2}) {
    EXPECT_FALSE(whole.observe(loss));
    EXPECT_FALSE(first.observe(loss));
  }
  Divergence second(1.5), anew(1.5);
  second.load(first.state());
  second.load(second.state());
  EXPECT_TRUE(whole.observe(100));
  EXPECT_TRUE(second.observe(100));
  EXPECT_EQ(second.because(), whole.because());
  EXPECT_FALSE(anew.observe(100)) << "it has seen nothing else";
}

}  // namespace
}  // namespace lockstep::train
