#include "lockstep/optim/schedule.h"

#include "tests/support/support.h"

namespace lockstep::optim {
namespace {

using config::Schedule;

TEST(Schedule, WarmUpRisesLinearlyToOne) {
  const config::ScheduleConfig config{.name = Schedule::constant, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(lr_factor(config, 0, 100), 0.2);
  EXPECT_DOUBLE_EQ(lr_factor(config, 3, 100), 0.8);
  EXPECT_DOUBLE_EQ(lr_factor(config, 4, 100), 1);
  EXPECT_DOUBLE_EQ(lr_factor(config, 99, 100), 1);
}

TEST(Schedule, CurvesGoFromOneToTheFinalRatio) {
  for (const auto name : {Schedule::linear, Schedule::cosine}) {
    const config::ScheduleConfig config{
        .name = name, .warmup_steps = 10, .final_ratio = 0.1};
    EXPECT_DOUBLE_EQ(lr_factor(config, 10, 110), 1);
    EXPECT_DOUBLE_EQ(lr_factor(config, 60, 110), 0.55);  // half-way, for both curves
    EXPECT_NEAR(lr_factor(config, 109, 110), 0.1, 0.01);
    EXPECT_DOUBLE_EQ(lr_factor(config, 110, 110), 0.1);
    EXPECT_DOUBLE_EQ(lr_factor(config, 500, 110), 0.1);  // stays there
  }
}

TEST(Schedule, CosineStartsSlowerThanLinear) {
  EXPECT_GT(lr_factor({.name = Schedule::cosine}, 10, 100),
            lr_factor({.name = Schedule::linear}, 10, 100));
}

TEST(Schedule, ARunOfOneStepHasTheFullRate) {
  EXPECT_DOUBLE_EQ(lr_factor({.name = Schedule::cosine}, 0, 1), 1);
}

}  // namespace
}  // namespace lockstep::optim
