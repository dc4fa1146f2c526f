#include "lockstep/optim/schedule.h"

#include "lockstep/base/files.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "tests/support/oracle.h"

namespace lockstep::optim {
namespace {

using Curve = config::Schedule;
using config::ScheduleConfig;
using config::ScheduleUnit;

// With optim.lr 1, so that a rate is a factor.
Schedule make(const ScheduleConfig& config, const RunLength& run) {
  config::OptimConfig optim;
  optim.lr = 1;
  return {optim, config, run};
}

double factor(const ScheduleConfig& config, std::int64_t step, std::int64_t steps) {
  return make(config, {.steps = steps, .steps_per_epoch = steps}).lr(step, 0);
}

ScheduleConfig named(Curve name) {
  ScheduleConfig config;
  config.name = name;
  return config;
}

TEST(Schedule, WarmUpRisesLinearlyToOne) {
  const ScheduleConfig config{.name = Curve::constant, .warmup_steps = 4};
  EXPECT_DOUBLE_EQ(factor(config, 0, 100), 0.2);
  EXPECT_DOUBLE_EQ(factor(config, 3, 100), 0.8);
  EXPECT_DOUBLE_EQ(factor(config, 4, 100), 1);
  EXPECT_DOUBLE_EQ(factor(config, 99, 100), 1);
}

TEST(Schedule, CurvesGoFromOneToTheFinalRatio) {
  for (const auto name : {Curve::linear, Curve::cosine}) {
    const ScheduleConfig config{.name = name, .warmup_steps = 10, .final_ratio = 0.1};
    EXPECT_DOUBLE_EQ(factor(config, 10, 110), 1);
    EXPECT_DOUBLE_EQ(factor(config, 60, 110), 0.55);  // half-way, for both curves
    EXPECT_NEAR(factor(config, 109, 110), 0.1, 0.01);
    EXPECT_DOUBLE_EQ(factor(config, 110, 110), 0.1);
    EXPECT_DOUBLE_EQ(factor(config, 500, 110), 0.1);  // stays there
  }
}

TEST(Schedule, ASweepGrowsByOneFactorUpToTheFullRate) {
  const ScheduleConfig config{.name = Curve::sweep, .start_ratio = 1e-8};
  EXPECT_NEAR(factor(config, 0, 101), 1e-8, 1e-20);  // rounding
  for (int step = 1; step < 101; ++step) {
    EXPECT_NEAR(factor(config, step, 101) / factor(config, step - 1, 101),
                std::pow(10, 0.08), 1e-12)  // rounding
        << step;
  }
  EXPECT_DOUBLE_EQ(factor(config, 100, 101), 1);
  EXPECT_DOUBLE_EQ(factor(config, 0, 1), 1);
}

TEST(Schedule, ARunOfOneStepHasTheFullRate) {
  for (const auto name : {Curve::linear, Curve::cosine, Curve::polynomial,
                          Curve::inverse_sqrt, Curve::wsd, Curve::exponential}) {
    EXPECT_DOUBLE_EQ(factor(named(name), 0, 1), 1) << config::name_of(name);
  }
}

TEST(Schedule, InverseSqrtHalvesWhenTheStepsAreFourTimesTheWarmUp) {
  auto config = named(Curve::inverse_sqrt);
  config.warmup_steps = 100;
  EXPECT_DOUBLE_EQ(factor(config, 100, 1000), 1);
  EXPECT_DOUBLE_EQ(factor(config, 400, 1000), 0.5);
  EXPECT_DOUBLE_EQ(factor(config, 900, 1000), 1.0 / 3);
  config.final_ratio = 0.4;
  EXPECT_DOUBLE_EQ(factor(config, 900, 1000), 0.4);
}

TEST(Schedule, WsdWarmsUpStaysAndFallsAtTheEnd) {
  auto config = named(Curve::wsd);
  config.warmup_steps = 9;
  config.decay_share = 0.2;
  config.final_ratio = 0.1;
  EXPECT_DOUBLE_EQ(factor(config, 4, 100), 0.5);
  EXPECT_DOUBLE_EQ(factor(config, 9, 100), 1);
  EXPECT_DOUBLE_EQ(factor(config, 80, 100), 1);
  EXPECT_DOUBLE_EQ(factor(config, 90, 100), 0.55);
  EXPECT_DOUBLE_EQ(factor(config, 100, 100), 0.1);
}

TEST(Schedule, ByEpochTheRateStaysWithinAnEpoch) {
  auto config = named(Curve::cosine);
  config.unit = ScheduleUnit::epoch;
  const auto schedule = make(config, {.steps = 40, .steps_per_epoch = 10});
  EXPECT_DOUBLE_EQ(schedule.lr(10, 1), schedule.lr(19, 1));
  EXPECT_DOUBLE_EQ(schedule.lr(20, 2), 0.5);  // half of four epochs
  EXPECT_GT(schedule.lr(10, 1), schedule.lr(20, 2));
}

TEST(Schedule, AWarmUpInEpochsStillRisesAtEveryStep) {
  auto config = named(Curve::linear);
  config.unit = ScheduleUnit::epoch;
  config.warmup_epochs = 2;
  const auto schedule = make(config, {.steps = 40, .steps_per_epoch = 10});
  EXPECT_DOUBLE_EQ(schedule.lr(0, 0), 1.0 / 21);
  EXPECT_DOUBLE_EQ(schedule.lr(19, 1), 20.0 / 21);
  EXPECT_DOUBLE_EQ(schedule.lr(20, 2), 1);
  EXPECT_DOUBLE_EQ(schedule.lr(30, 3), 0.5);
}

TEST(Schedule, DropsCountFromTheStartOfTheRunWithAWarmUpToo) {
  auto config = named(Curve::multi_step);
  config.warmup_steps = 5;
  config.milestones = {10, 20};
  EXPECT_DOUBLE_EQ(factor(config, 9, 30), 1);
  EXPECT_DOUBLE_EQ(factor(config, 10, 30), 0.1);
  EXPECT_DOUBLE_EQ(factor(config, 29, 30), 0.1 * 0.1);
}

TEST(Schedule, TheRateFollowsTheGlobalBatchByTheRuleThatWasAskedFor) {
  config::OptimConfig optim;
  optim.lr = 0.1;
  optim.base_batch = 256;
  const auto rate = [&](config::LrScaling scaling) {
    optim.lr_scaling = scaling;
    return Schedule(optim, {}, {.steps = 10, .global_batch = 1024}).lr(0, 0);
  };
  EXPECT_DOUBLE_EQ(rate(config::LrScaling::none), 0.1);
  EXPECT_DOUBLE_EQ(rate(config::LrScaling::linear), 0.4);
  EXPECT_DOUBLE_EQ(rate(config::LrScaling::sqrt), 0.2);
}

std::string refusal(const ScheduleConfig& config, const RunLength& run) {
  return test::error_text(Fault::config, [&] { make(config, run); });
}

TEST(Schedule, WhatLiesBeyondTheRunIsRefusedWithTheArithmetic) {
  const RunLength run{.steps = 26, .steps_per_epoch = 13};
  EXPECT_EQ(refusal({.warmup_steps = 27}, run),
            "schedule.warmup_steps: 27 steps of warm-up, but the run has 2 epochs * 13 "
            "steps = 26 steps; shorten the warm-up or train longer");
  EXPECT_EQ(
      refusal({.warmup_epochs = 3}, run),
      "schedule.warmup_epochs: 3 epochs * 13 steps = 39 steps of warm-up, but the "
      "run has 2 epochs * 13 steps = 26 steps; shorten the warm-up or train "
      "longer");
  auto drops = named(Curve::multi_step);
  drops.milestones = {10, 26};
  EXPECT_THAT(
      refusal(drops, run),
      testing::HasSubstr("schedule.milestones: the rate would drop at step 26"));
  auto steps = named(Curve::step);
  steps.unit = ScheduleUnit::epoch;
  steps.step_size = 2;
  EXPECT_THAT(refusal(steps, run),
              testing::HasSubstr("schedule.step_size: the rate would drop at epoch 2"));
  auto wsd = named(Curve::wsd);
  wsd.warmup_steps = 20;
  wsd.decay_share = 0.5;
  EXPECT_THAT(refusal(wsd, run), testing::HasSubstr("warm-up 20 + decay 13 (0.5 of 26) "
                                                    "= 33 steps"));
}

ScheduleConfig plateau(config::Goal goal) {
  auto config = named(Curve::plateau);
  config.goal = goal;
  config.gamma = 0.5;
  config.patience = 2;
  config.cooldown = 1;
  config.threshold = 0.01;
  config.final_ratio = 0.1;
  return config;
}

TEST(Plateau, DropsAfterPatienceAndContinuesFromItsState) {
  const RunLength run{.steps = 100};
  auto schedule = make(plateau(config::Goal::min), run);
  schedule.observe(1);
  schedule.observe(0.999);  // less than a hundredth better is no progress
  schedule.observe(std::nan(""));
  EXPECT_DOUBLE_EQ(schedule.lr(3, 0), 1);
  auto copy = make(plateau(config::Goal::min), run);
  copy.load(schedule.state());
  for (auto* one : {&schedule, &copy}) {
    one->observe(2);
    EXPECT_DOUBLE_EQ(one->lr(4, 0), 0.5);
  }
}

TEST(Plateau, ForgetsTheBestOfAnotherMetricButNotTheRate) {
  auto schedule = make(plateau(config::Goal::min), {.steps = 100});
  for (const double value : {0.1, 1.0, 1.0, 1.0}) schedule.observe(value);
  const double lr = schedule.lr(4, 0);
  EXPECT_LT(lr, 1);
  schedule.forget_observed();
  for (const double value : {9.0, 8.0, 7.0, 6.0}) schedule.observe(value);
  EXPECT_DOUBLE_EQ(schedule.lr(4, 0), lr);
}

TEST(Plateau, OtherSchedulesHaveNoStateAndObserveNothing) {
  auto schedule = make(named(Curve::cosine), {.steps = 10});
  EXPECT_FALSE(schedule.observes());
  EXPECT_TRUE(schedule.state().empty());
  for (int i = 0; i < 50; ++i) schedule.observe(1);
  EXPECT_DOUBLE_EQ(schedule.lr(0, 0), 1);
}

// One line of JSON for tests/oracle/schedule.py.
std::string line_of(const ScheduleConfig& c, std::int64_t steps,
                    const std::vector<double>& values) {
  std::string milestones, rates;
  for (const int at : c.milestones)
    milestones += str(milestones.empty() ? "" : ",", at);
  for (const double value : values) {
    rates += str(rates.empty() ? "" : ",", text::from_double(value));
  }
  return str(R"({"name": ")", config::name_of(c.name), R"(", "steps": )", steps,
             R"(, "warmup": )", c.warmup_steps, R"(, "final_ratio": )", c.final_ratio,
             R"(, "power": )", c.power, R"(, "step_size": )", c.step_size,
             R"(, "gamma": )", c.gamma, R"(, "rise": )", c.rise, R"(, "start_ratio": )",
             c.start_ratio, R"(, "patience": )", c.patience, R"(, "threshold": )",
             c.threshold, R"(, "cooldown": )", c.cooldown, R"(, "goal": ")",
             config::name_of(c.goal), R"(", "milestones": [)", milestones,
             R"(], "values": [)", rates, "]}\n");
}

std::vector<ScheduleConfig> all_that_pytorch_has() {
  std::vector<ScheduleConfig> all;
  for (const std::int64_t warmup : {0, 7}) {
    for (const auto name : {Curve::constant, Curve::linear, Curve::cosine,
                            Curve::polynomial, Curve::exponential, Curve::one_cycle}) {
      auto config = named(name);
      config.warmup_steps = warmup;
      config.power = 2;
      if (name == Curve::exponential) config.gamma = 0.97;
      if (name == Curve::linear || name == Curve::cosine) config.final_ratio = 0.05;
      if (name == Curve::one_cycle) config.final_ratio = 0.04 * 1e-4;
      all.push_back(config);
    }
  }
  auto step = named(Curve::step);
  step.step_size = 11;
  all.push_back(step);
  auto drops = named(Curve::multi_step);
  drops.milestones = {5, 20, 41};
  all.push_back(drops);
  return all;
}

// A metric that falls, stays and rises.
double metric(std::int64_t i) {
  return 1 +
         std::cos(0.2 * static_cast<double>(i)) / (1 + 0.1 * static_cast<double>(i));
}

TEST(Schedule, EqualsPyTorchsSchedulersAtEveryStep) {
  LOCKSTEP_NEEDS_ORACLE();
  constexpr std::int64_t kSteps = 50;
  std::string lines;
  for (const auto& config : all_that_pytorch_has()) {
    std::vector<double> values;
    for (std::int64_t i = 0; i < kSteps; ++i)
      values.push_back(factor(config, i, kSteps));
    lines += line_of(config, kSteps, values);
  }
  for (const auto goal : {config::Goal::min, config::Goal::max}) {
    auto schedule = make(plateau(goal), {.steps = kSteps});
    std::vector<double> values;
    for (std::int64_t i = 0; i < kSteps; ++i) {
      values.push_back(schedule.lr(i, 0));
      schedule.observe(metric(i));
    }
    lines += line_of(plateau(goal), kSteps, values);
  }
  const files::TemporaryDirectory folder;
  test::write_file(folder.path() / "schedules", lines);
  test::expect_oracle_agrees("schedule.py", {(folder.path() / "schedules").string()});
}

}  // namespace
}  // namespace lockstep::optim
