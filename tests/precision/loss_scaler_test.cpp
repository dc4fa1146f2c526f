#include "lockstep/precision/loss_scaler.h"

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "tests/support/oracle.h"

namespace lockstep::precision {
namespace {

config::PrecisionConfig fp16() {
  config::PrecisionConfig config;
  config.mode = config::Precision::fp16;
  config.growth_interval = 3;
  config.initial_scale = 1024;
  return config;
}

TEST(LossScaler, IsOneAndStaysSoInOtherModes) {
  config::PrecisionConfig config;
  config.mode = config::Precision::bf16;
  config.loss_scale = 8;
  LossScaler scaler(config);
  EXPECT_FALSE(scaler.active());
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1);
}

TEST(LossScaler, IsThatOfParametersInFp16Too) {
  auto config = fp16();
  config.mode = config::Precision::fp16_params;
  LossScaler scaler(config);
  EXPECT_TRUE(scaler.active());
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 512);
}

TEST(LossScaler, GrowsAfterTheIntervalAndBacksOffAtOnce) {
  LossScaler scaler(fp16());
  for (int i = 0; i < 2; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 2048);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1024);
  EXPECT_EQ(scaler.num_overflows(), 1);
  for (int i = 0; i < 2; ++i) scaler.update(false);
  scaler.update(true);  // the interval starts over
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 512);
}

TEST(LossScaler, FactorsAreThoseThatWereAskedFor) {
  auto config = fp16();
  config.growth_factor = 4;
  config.backoff_factor = 0.25;
  config.growth_interval = 1;
  LossScaler scaler(config);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 4096);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1024);
}

TEST(LossScaler, HysteresisBearsOverflowsUntilItGrows) {
  auto config = fp16();
  config.hysteresis = 2;
  LossScaler scaler(config);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 1024);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 512);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 256) << "nothing was good in between";
  for (int i = 0; i < 3; ++i) scaler.update(false);
  EXPECT_EQ(scaler.scale(), 512);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 512) << "it grew, so one is borne again";
}

TEST(LossScaler, AFixedScaleStays) {
  auto config = fp16();
  config.loss_scale = 128;
  LossScaler scaler(config);
  for (int i = 0; i < 10; ++i) scaler.update(i % 3 == 0);
  EXPECT_EQ(scaler.scale(), 128);
  EXPECT_EQ(scaler.num_overflows(), 4);
}

TEST(LossScaler, AnOverflowAtTheLeastScaleIsAnError) {
  auto config = fp16();
  config.initial_scale = 4;
  config.min_scale = 2;
  LossScaler scaler(config);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 2);
  EXPECT_THAT(test::error_text(Fault::config, [&] { scaler.update(true); }),
              testing::HasSubstr("even with a loss scale of 2"));
}

TEST(LossScaler, NeverLeavesTheRangeOfFloat) {
  auto config = fp16();
  config.growth_interval = 1;
  LossScaler scaler(config);
  for (int i = 0; i < 200; ++i) scaler.update(false);
  EXPECT_TRUE(std::isfinite(static_cast<float>(scaler.scale())));
}

TEST(LossScaler, ACopyLoadedFromTheStateContinuesAlike) {
  auto config = fp16();
  config.hysteresis = 2;
  LossScaler first(config), second(config);
  first.update(true);
  for (int i = 0; i < 2; ++i) first.update(false);
  second.load(first.state());
  for (const bool overflow : {false, true, true, false}) {
    first.update(overflow);
    second.update(overflow);
    EXPECT_EQ(first.scale(), second.scale());
  }
  EXPECT_EQ(first.num_overflows(), second.num_overflows());
}

// 200 steps of which some overflow.
bool overflows(int step) {
  return step % 17 == 5 || (step > 100 && step < 104);
}

TEST(LossScaler, EqualsPyTorchsGradScalerStepByStep) {
  LOCKSTEP_NEEDS_ORACLE();
  auto config = fp16();
  config.growth_interval = 5;
  LossScaler scaler(config);
  std::string flags, scales;
  for (int i = 0; i < 200; ++i) {
    flags += overflows(i) ? '1' : '0';
    scales += str(i > 0 ? "," : "", text::from_double(scaler.scale()));
    scaler.update(overflows(i));
  }
  test::expect_oracle_agrees("loss_scale.py", {"1024", "5", flags, scales});
}

}  // namespace
}  // namespace lockstep::precision
