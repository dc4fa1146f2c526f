#include "lockstep/monitor/telemetry.h"

#include <atomic>
#include <cmath>
#include <stdexcept>

#include <nlohmann/json.hpp>

#include "tests/hardware/fake_machine.h"
#include "tests/run/run_rig.h"

namespace lockstep {
namespace {

using monitor::Telemetry;
using std::chrono::seconds;
using ::testing::HasSubstr;

// The samples are taken by the test, not by the thread.
class TelemetryTest : public ::testing::Test {
 protected:
  TelemetryTest() {
    config_.sample_every = seconds(0);
    config_.sinks = {config::Sink::jsonl};
  }
  std::unique_ptr<Telemetry> start() {
    return std::make_unique<Telemetry>(
        rig_.run, config_,
        Telemetry::Site{.gpus = gpus_,
                        .say = [this](const std::string& note) { said_ += note; },
                        .clock = clock_,
                        .root = machine_.root()});
  }
  void pass(Telemetry& telemetry, int count) {
    for (int i = 0; i < count; ++i) {
      telemetry.sample();
      clock_.advance(seconds(1));
    }
  }
  test::Json summary() const {
    return test::Json::parse(test::read_file(rig_.run.summary()));
  }
  std::vector<run::Event> events() const {
    return run::last_events(rig_.run.events(), 100);
  }
  std::size_t system_lines() const {
    const auto text = test::read_file(rig_.run.system());
    return static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n'));
  }

  test::RunRig rig_;
  test::Json state_ = test::fake_gpus(2);
  test::FakeMachine machine_{state_};
  config::MonitorConfig config_;
  std::vector<int> gpus_{0, 1};  // of the run
  ManualClock clock_;
  std::string said_;
};

TEST_F(TelemetryTest, SummarisesTheRun) {
  const auto telemetry = start();
  pass(*telemetry, 10);
  state_["gpus"][0]["power_mw"] = 300'500;
  state_["gpus"][0]["energy_mj"] = 123'456'000 + 3'600'000;
  machine_.set(state_);
  pass(*telemetry, 10);
  telemetry->metrics({.step = 1, .loss = 2, .more = {{"memory_bytes", 100.0}}});
  telemetry->metrics({.step = 2, .loss = 4, .more = {{"memory_bytes", 300.0}}});
  telemetry->finish({});
  const auto json = summary();
  const auto& power = json.at("metrics").at("gpu_power_watts.0");
  EXPECT_EQ(power.at("count"), 20);
  EXPECT_EQ(power.at("mean"), 188);
  EXPECT_EQ(power.at("max"), 300.5);
  EXPECT_EQ(power.at("p50"), 75.5);
  EXPECT_EQ(json.at("metrics").at("gpu_power_watts.1").at("max"), 75.5);
  EXPECT_EQ(json.at("metrics").at("train/memory_bytes").at("mean"), 200);
  EXPECT_EQ(json.at("metrics").at("train/memory_bytes").at("max"), 300);
  EXPECT_NEAR(json.at("energy_kwh").get<double>(), 3600 / 3.6e6, 1e-12);
}

TEST_F(TelemetryTest, LinesOfLaterCommandsAreOfLaterAttempts) {
  config_.sinks = {config::Sink::jsonl, config::Sink::csv};
  for (const std::int64_t attempt : {1, 2, 3}) {
    const auto telemetry = start();
    EXPECT_EQ(telemetry->attempt(), attempt);
    run::EventWriter(rig_.run.events()).write("started");
    telemetry->metrics({.step = attempt, .loss = 1, .more = {}});
    EXPECT_EQ(monitor::read_metrics(rig_.run.metrics()).back().attempt, attempt);
    EXPECT_THAT(test::read_file(rig_.run.path() / "metrics.csv"),
                HasSubstr(str(",train,loss,,1,", attempt, "\n")));
  }
}

TEST_F(TelemetryTest, WithoutACounterEnergyIsPowerOverTime) {
  state_["gpus"].erase(1);
  state_["gpus"][0].erase("energy_mj");
  state_["gpus"][0]["power_mw"] = 360'000;
  machine_.set(state_);
  const auto telemetry = start();
  pass(*telemetry, 101);
  telemetry->finish({});
  EXPECT_NEAR(summary().at("energy_kwh").get<double>(), 0.01, 1e-9);
}

// They take milliseconds; Prometheus wants them in every sample all the same.
TEST_F(TelemetryTest, SlowCountersAreReadWhenAWindowCloses) {
  monitor::SystemProbe probe(
      {.run_directory = rig_.run.path(), .root = machine_.root(), .clock = clock_});
  const auto energy = [&](hardware::Counters counters) {
    return probe.read(counters).gpus.at(0).energy_joules;
  };
  EXPECT_EQ(energy(hardware::Counters::all), 123'456);
  state_["gpus"][0]["energy_mj"] = 200'000'000;
  machine_.set(state_);
  EXPECT_EQ(energy(hardware::Counters::quick), 123'456);
  EXPECT_EQ(energy(hardware::Counters::all), 200'000);
  const hardware::GpuMeter meter(machine_.root());
  EXPECT_FALSE(meter.read(hardware::Counters::quick).at(0).energy_joules);
  EXPECT_FALSE(meter.read(hardware::Counters::quick).at(0).pcie_replays);
}

TEST_F(TelemetryTest, WithoutAGpuThereIsNoEnergy) {
  machine_.set(test::fake_gpus(0));
  const auto telemetry = start();
  pass(*telemetry, 2);
  telemetry->finish({});
  EXPECT_TRUE(summary().at("energy_kwh").is_null());
}

// Idle GPUs of the machine, or those that others heat, are not this run's.
TEST_F(TelemetryTest, GpusOfOthersAreNeitherSampledNorWatched) {
  gpus_ = {1};
  config_.sinks = {config::Sink::jsonl, config::Sink::prometheus};
  config_.prometheus_file = (rig_.run.path() / "metrics.prom").string();
  state_["gpus"][0]["temperature"] = 99;
  machine_.set(state_);
  const auto telemetry = start();
  pass(*telemetry, 31);
  state_["gpus"][0]["energy_mj"] = 999'999'000;
  machine_.set(state_);
  EXPECT_THAT(events(), ::testing::IsEmpty());
  const auto prometheus = test::read_file(config_.prometheus_file);
  EXPECT_THAT(prometheus, HasSubstr(str("gpu=\"1\",uuid=\"", test::fake_uuid(1))));
  EXPECT_THAT(prometheus, ::testing::Not(HasSubstr("gpu=\"0\"")));
  telemetry->finish({});
  const auto json = summary();
  EXPECT_FALSE(json.at("metrics").contains("gpu_power_watts.0"));
  EXPECT_EQ(json.at("metrics").at("gpu_power_watts.1").at("count"), 31);
  EXPECT_EQ(json.at("energy_kwh"), 0);
}

TEST_F(TelemetryTest, ARunOnTheCpuHasNoGpus) {
  gpus_ = {};
  const auto telemetry = start();
  telemetry->step(1);
  for (int i = 0; i < 200; ++i) {
    telemetry->step(i + 2);
    pass(*telemetry, 1);
  }
  EXPECT_THAT(events(), ::testing::IsEmpty());
  telemetry->finish({});
  EXPECT_TRUE(summary().at("energy_kwh").is_null());
}

TEST_F(TelemetryTest, SystemLinesAreMeansOfTheirWindow) {
  config_.system_every = seconds(10);
  const auto telemetry = start();
  pass(*telemetry, 1);
  EXPECT_EQ(system_lines(), 1U);  // the first at once
  pass(*telemetry, 5);
  state_["gpus"][0]["utilization"] = {100, 0};
  machine_.set(state_);
  telemetry->step(7);
  pass(*telemetry, 4);
  EXPECT_EQ(system_lines(), 1U);
  pass(*telemetry, 1);
  EXPECT_EQ(system_lines(), 2U);
  const auto text = test::read_file(rig_.run.system());
  EXPECT_THAT(text, HasSubstr("\"step\":7,\"gpu_utilization_ratio.0\":0.5,"));
  EXPECT_THAT(text, HasSubstr("\"gpu_energy_joules.0\":123456.0"));
}

TEST_F(TelemetryTest, ASinkThatCanNotStartIsLeftOut) {
  test::write_file(rig_.run.path() / "tensorboard", "in the way");
  config_.sinks = {config::Sink::tensorboard, config::Sink::jsonl};
  const auto telemetry = start();
  telemetry->metrics({.step = 1, .loss = 1});
  telemetry->finish({});
  EXPECT_EQ(monitor::read_metrics(rig_.run.metrics()).size(), 1U);
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(events()[0].kind, "sink_failed");
}

TEST_F(TelemetryTest, ASinkThatFailsLaterIsLeftOutAndTheRunGoesOn) {
  config_.sinks = {config::Sink::csv, config::Sink::jsonl, config::Sink::prometheus};
  config_.prometheus_file = (rig_.run.path() / "there/metrics.prom").string();
  std::filesystem::create_directory(rig_.run.path() / "there");
  const auto telemetry = start();
  pass(*telemetry, 1);
  std::filesystem::remove_all(rig_.run.path() / "there");
  pass(*telemetry, 3);
  telemetry->metrics({.step = 1, .loss = 1});
  telemetry->finish({});
  ASSERT_EQ(events().size(), 1U);  // said once
  EXPECT_EQ(events()[0].kind, "sink_failed");
  EXPECT_EQ(monitor::read_metrics(rig_.run.metrics()).size(), 1U);
}

TEST_F(TelemetryTest, AlertsAreEvents) {
  const auto telemetry = start();
  telemetry->step(12);
  telemetry->metrics({.step = 12, .loss = std::nan("")});
  ASSERT_EQ(events().size(), 1U);
  EXPECT_EQ(events()[0].kind, "alert");
  const auto text = test::read_file(rig_.run.events());
  EXPECT_THAT(text, HasSubstr("\"rule\":\"loss\",\"raised\":true,\"step\":12"));
  state_["gpus"][1]["temperature"] = 99;
  machine_.set(state_);
  pass(*telemetry, 31);
  EXPECT_THAT(test::read_file(rig_.run.events()), HasSubstr("\"gpu\":1"));
}

TEST_F(TelemetryTest, NoStepIsNoticedByTheSamples) {
  config_.alert_no_step = seconds(5);
  const auto telemetry = start();
  clock_.advance(seconds(100));
  telemetry->step(1);
  pass(*telemetry, 5);
  EXPECT_THAT(events(), ::testing::IsEmpty());
  pass(*telemetry, 1);
  EXPECT_EQ(events().size(), 1U);
}

TEST_F(TelemetryTest, TheThreadSamples) {
  config_.sample_every = std::chrono::milliseconds(1);
  config_.system_every = std::chrono::milliseconds(0);
  Telemetry telemetry(rig_.run, config_, {.gpus = gpus_, .root = machine_.root()});
  EXPECT_TRUE(test::eventually([&] { return system_lines() >= 3; }));
  telemetry.finish({});
  EXPECT_GE(summary().at("metrics").at("gpu_power_watts.0").at("count"), 3);
}

// Fails whenever the machine is looked at.
class BrokenClock : public ManualClock {
 public:
  WallTime wall() const override {
    looks += 1;
    throw std::runtime_error("no time");
  }
  mutable std::atomic<int> looks{0};
};

TEST_F(TelemetryTest, AProbeThatFailsCostsSamplesAndNoMore) {
  config_.sample_every = std::chrono::milliseconds(1);
  config_.sinks = {};
  const BrokenClock clock;
  Telemetry telemetry(rig_.run, config_,
                      {.gpus = gpus_, .clock = clock, .root = machine_.root()});
  EXPECT_TRUE(test::eventually([&] { return clock.looks >= 3; }));
  telemetry.finish({});
}

TEST_F(TelemetryTest, AShortRunHasASampleToo) {
  config_.sample_every = std::chrono::hours(1);
  const auto telemetry = start();
  telemetry->finish({});
  EXPECT_EQ(system_lines(), 1U);
}

TEST_F(TelemetryTest, OneThatIsNotFinishedStopsAllTheSame) {
  config_.sample_every = std::chrono::hours(1);
  start();
}

TEST_F(TelemetryTest, WhatAPersonCanDoIsSaidAtTheEnd) {
  config_.sinks = {config::Sink::wandb};
  start()->finish({});
  EXPECT_THAT(said_, HasSubstr("wandb sync "));
}

}  // namespace
}  // namespace lockstep
