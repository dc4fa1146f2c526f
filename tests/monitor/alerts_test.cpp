#include "lockstep/monitor/alerts.h"

#include <cmath>

#include "tests/support/support.h"

namespace lockstep {
namespace {

using monitor::Alert;
using std::chrono::seconds;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// A GPU whose status is told second by second.
class AlertRules : public ::testing::Test {
 protected:
  AlertRules() {
    gpu_.index = 2;
    gpu_.memory_total_bytes = 100;
    gpu_.slowdown_celsius = 95;
  }

  // The alerts of `count` seconds in which nothing changes.
  std::vector<Alert> pass(int count) {
    if (!alerts_) alerts_.emplace(config_, std::vector{gpu_});
    std::vector<Alert> all;
    for (int i = 0; i < count; ++i) {
      now_ += seconds(1);
      if (steps_) last_step_ = now_;
      for (auto& alert : alerts_->sample({.readings = readings_, .gpus = {status_}},
                                         now_, last_step_)) {
        all.push_back(std::move(alert));
      }
    }
    return all;
  }

  config::MonitorConfig config_;
  hardware::Gpu gpu_;
  hardware::GpuStatus status_;
  std::vector<monitor::Reading> readings_;
  std::optional<monitor::Alerts> alerts_;
  SteadyTime now_{seconds(1000)};
  std::optional<SteadyTime> last_step_;
  bool steps_ = true;
};

TEST_F(AlertRules, ATemperatureHasToLast) {
  status_.temperature_celsius = 85;
  EXPECT_THAT(pass(30), IsEmpty());
  const auto alerts = pass(1);
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_EQ(alerts[0].rule, "temperature");
  EXPECT_EQ(alerts[0].gpu, 2);
  EXPECT_TRUE(alerts[0].raised);
  EXPECT_THAT(alerts[0].text, HasSubstr("GPU 2 has 85 C, the limit is 85 C"));
  EXPECT_THAT(pass(1000), IsEmpty());  // said once
}

TEST_F(AlertRules, AMomentDoesNotCount) {
  for (int i = 0; i < 10; ++i) {
    status_.temperature_celsius = 90;
    EXPECT_THAT(pass(20), IsEmpty());
    status_.temperature_celsius = 84;
    EXPECT_THAT(pass(1), IsEmpty());
  }
}

TEST_F(AlertRules, AnEndNeedsAMarginAndTimeToo) {
  status_.temperature_celsius = 90;
  pass(31);
  status_.temperature_celsius = 82;  // below the limit, but not by five degrees
  EXPECT_THAT(pass(100), IsEmpty());
  status_.temperature_celsius = 80;
  EXPECT_THAT(pass(30), IsEmpty());
  const auto alerts = pass(1);
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_FALSE(alerts[0].raised);
  status_.temperature_celsius = 90;
  EXPECT_EQ(pass(31).size(), 1U);  // and it can come again
}

TEST_F(AlertRules, TheGpusOwnLimitCountsWhereItIsLower) {
  gpu_.slowdown_celsius = 80;
  status_.temperature_celsius = 77;
  EXPECT_EQ(pass(31).size(), 1U);
}

TEST_F(AlertRules, SlowedDownByPowerIsTold) {
  status_.throttle_reasons = {"idle", "clocks_setting"};
  EXPECT_THAT(pass(100), IsEmpty());
  status_.throttle_reasons = {"idle", "power_cap"};
  const auto alerts = pass(31);
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_EQ(alerts[0].text, "GPU 2 is slowed down: power_cap");
}

TEST_F(AlertRules, MemoryNearItsLimitIsTold) {
  status_.memory_used_bytes = 97;
  EXPECT_THAT(pass(100), IsEmpty());
  status_.memory_used_bytes = 98;
  EXPECT_EQ(pass(31).at(0).rule, "memory");
  readings_ = {{"host_memory_used_bytes", std::nullopt, 99},
               {"host_memory_total_bytes", std::nullopt, 100}};
  const auto alerts = pass(31);
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_EQ(alerts[0].gpu, std::nullopt);
}

TEST_F(AlertRules, LowUtilizationCountsOnlyWhileTraining) {
  steps_ = false;
  status_.utilization_percent = 5;
  EXPECT_THAT(pass(100), IsEmpty());
  steps_ = true;
  EXPECT_EQ(pass(31).at(0).rule, "utilization");
}

TEST_F(AlertRules, AMemoryErrorIsToldAtOnceAndOnce) {
  status_.ecc_uncorrected = 7;  // of before the run
  EXPECT_THAT(pass(10), IsEmpty());
  status_.ecc_uncorrected = 8;
  const auto alerts = pass(1);
  ASSERT_EQ(alerts.size(), 1U);
  EXPECT_THAT(alerts[0].text, HasSubstr("GPU 2 had 1 memory error"));
  EXPECT_THAT(pass(100), IsEmpty());
}

TEST_F(AlertRules, NoStepForTooLongIsTold) {
  pass(1);
  steps_ = false;
  EXPECT_THAT(pass(299), IsEmpty());
  EXPECT_EQ(pass(1).at(0).rule, "no_step");
  steps_ = true;
  const auto over = pass(1);
  ASSERT_EQ(over.size(), 1U);
  EXPECT_FALSE(over[0].raised);
}

TEST_F(AlertRules, BeforeTheFirstStepNothingIsMissing) {
  steps_ = false;
  EXPECT_THAT(pass(1000), IsEmpty());
}

TEST_F(AlertRules, KnobsSetTheLimits) {
  config_.alert_after = seconds(0);
  config_.alert_temperature = 50;
  config_.alert_memory = 0.5;
  config_.alert_utilization = 0.9;
  config_.alert_no_step = seconds(0);
  status_.temperature_celsius = 50;
  status_.memory_used_bytes = 51;
  status_.utilization_percent = 89;
  EXPECT_EQ(pass(1).size(), 3U);
  steps_ = false;
  EXPECT_THAT(pass(10'000), IsEmpty());
}

TEST_F(AlertRules, CanBeTurnedOff) {
  config_.alerts = false;
  status_.temperature_celsius = 120;
  EXPECT_THAT(pass(1000), IsEmpty());
  EXPECT_THAT(alerts_->metrics({.loss = std::nan("")}, now_), IsEmpty());
}

TEST_F(AlertRules, ALossThatIsNoNumberIsToldAtOnce) {
  monitor::Alerts alerts(config_, {});
  EXPECT_THAT(alerts.metrics({.step = 4, .loss = 1}, now_), IsEmpty());
  const auto told = alerts.metrics({.step = 5, .loss = std::nan("")}, now_);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0].text, HasSubstr("the loss of step 5 is nan"));
  EXPECT_THAT(alerts.metrics({.step = 6, .loss = std::nan("")}, now_), IsEmpty());
  EXPECT_FALSE(alerts.metrics({.step = 7, .loss = 1}, now_).at(0).raised);
}

TEST_F(AlertRules, AKnobSaysHowMuchWaitingForDataIsTooMuch) {
  config_.alert_data_wait = 0.1;
  config_.alert_after = seconds(0);
  monitor::Alerts alerts(config_, {});
  alerts.metrics({.more = {{"data_wait_seconds", 1.5}}}, now_);
  const auto told =
      alerts.metrics({.more = {{"data_wait_seconds", 1.5}}}, now_ + seconds(10));
  EXPECT_EQ(told.size(), 1U);
}

TEST_F(AlertRules, WaitingForDataIsAShareOfTheTime) {
  monitor::Alerts alerts(config_, {});
  std::vector<Alert> all;
  const auto report = [&](double waited) {
    now_ += seconds(10);
    return alerts.metrics({.more = {{"data_wait_seconds", waited}}}, now_);
  };
  for (int i = 0; i < 10; ++i) EXPECT_THAT(report(2.9), IsEmpty());
  for (int i = 0; i < 3; ++i) EXPECT_THAT(report(5), IsEmpty());
  const auto told = report(5);
  ASSERT_EQ(told.size(), 1U);
  EXPECT_THAT(told[0].text,
              HasSubstr("50 % of the step time is spent waiting for data"));
  for (int i = 0; i < 3; ++i) EXPECT_THAT(report(1), IsEmpty());
  EXPECT_FALSE(report(1).at(0).raised);
}

}  // namespace
}  // namespace lockstep
