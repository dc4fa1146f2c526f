// Where the time of a step goes: the trace of all ranks, and that looking changes
// nothing.
#include "lockstep/profile/profiler.h"

#include <filesystem>
#include <set>

#include <nlohmann/json.hpp>

#include "lockstep/monitor/console.h"
#include "lockstep/train/device.h"
#include "lockstep/train/early_stop.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using monitor::Span;
using monitor::StepPhase;
using testing::HasSubstr;

constexpr std::int64_t kFirst = 4;
constexpr std::int64_t kLast = 6;

config::Config profiled_config() {
  auto config = test::quick_config();
  config.train.epochs = 0;
  config.train.steps = 8;
  config.batch.micro = 4;  // several passes a step
  config.parallel.bucket_bytes = 1000;
  config.parallel.first_bucket_bytes = 1000;
  config.profile.steps = "4:6";
  return config;
}

struct Profiled {
  std::vector<double> losses;
  std::vector<monitor::Metrics> metrics;
  std::string trace;  // as text; "" if there is none
  std::optional<monitor::Timeline> timeline;
};

Profiled read_run(const files::Path& run) {
  Profiled done{.losses = {}, .metrics = monitor::read_metrics(run / "metrics.jsonl")};
  for (const auto& line : done.metrics) done.losses.push_back(line.loss);
  if (!std::filesystem::exists(run / "trace.json")) return done;
  done.trace = test::read_file(run / "trace.json");
  done.timeline = monitor::read_chrome_trace(run / "trace.json");
  return done;
}

// On so many ranks, each a process, or a thread of one with data_parallel.
Profiled run_profiled(int ranks, config::Config config) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  const bool threads = config.parallel.strategy == config::Strategy::data_parallel;
  if (ranks > 1 && !threads) config.parallel.strategy = config::Strategy::ddp;
  config.parallel.ranks = ranks;
  const int port = test::free_port();
  test::as_processes(threads ? 1 : ranks, [&](int rank) {
    monitor::Console console({.write = [](std::string_view) {}});
    const StopRequest stop;
    if (threads) {
      train_replicas(test::resolved(config),
                     {run, choose_devices(config.parallel), console, stop});
      return;
    }
    Reporter reporter({run, console}, config.monitor, {.rank = rank, .ranks = ranks});
    auto world = comm::join(
        ranks == 1 ? run::RankEnvironment() : test::environment_of(rank, ranks, port),
        {.config = config.comm});
    const auto result = train(test::resolved(config), {run, reporter, stop, world});
    EXPECT_EQ(result.split.has_value(), !config.profile.steps.empty());
    EXPECT_GT(result.forward_seconds, 0);
    EXPECT_GT(result.backward_seconds, 0);
    EXPECT_LE(result.forward_seconds + result.backward_seconds, result.train_seconds);
    world.close();
  });
  return read_run(run.path());
}

double length_of_span(const Span& span) {
  return span.end - span.begin;
}

// Every step is there once, its phases lie in it and do not overlap, and all kinds of
// them occur.
void expect_nested(const monitor::RankTimeline& rank) {
  constexpr double kRounding = 2e-9;  // a trace has nanoseconds
  std::map<std::int64_t, const Span*> steps;
  for (const auto& span : rank.spans) {
    EXPECT_LE(span.begin, span.end);
    if (span.kind != Span::Kind::step) continue;
    EXPECT_TRUE(steps.emplace(span.step, &span).second) << span.step << " twice";
    EXPECT_GT(span.index, 0) << "samples";
  }
  ASSERT_EQ(steps.size(), static_cast<std::size_t>(kLast - kFirst + 1));
  EXPECT_EQ(steps.begin()->first, kFirst);
  EXPECT_EQ(steps.rbegin()->first, kLast);
  std::map<std::int64_t, double> sums, ends;
  std::set<StepPhase> seen;
  for (const auto& span : rank.spans) {
    if (span.kind == Span::Kind::step) continue;
    const auto& step = *steps.at(span.step);
    EXPECT_GE(span.begin, step.begin - kRounding);
    EXPECT_LE(span.end, step.end + kRounding);
    if (span.kind != Span::Kind::phase) continue;
    if (ends.count(span.step) > 0) {
      EXPECT_GE(span.begin, ends[span.step] - kRounding);
    }
    ends[span.step] = span.end;
    sums[span.step] += length_of_span(span);
    seen.insert(span.phase);
  }
  for (const auto& [number, sum] : sums) {
    EXPECT_LE(sum, length_of_span(*steps.at(number)) + 100 * kRounding);
  }
  for (const auto phase : {StepPhase::data, StepPhase::forward, StepPhase::backward,
                           StepPhase::optimizer}) {
    EXPECT_EQ(seen.count(phase), 1U) << monitor::name_of(phase);
  }
}

std::size_t count_kind(const monitor::RankTimeline& rank, Span::Kind kind) {
  return static_cast<std::size_t>(
      std::count_if(rank.spans.begin(), rank.spans.end(),
                    [&](const Span& span) { return span.kind == kind; }));
}

TEST(Profile, OfOneRankNestsPhasesInStepsAndChangesNoLoss) {
  const auto profiled = run_profiled(1, profiled_config());
  ASSERT_TRUE(profiled.timeline);
  ASSERT_EQ(profiled.timeline->ranks.size(), 1U);
  expect_nested(profiled.timeline->ranks[0]);
  EXPECT_EQ(count_kind(profiled.timeline->ranks[0], Span::Kind::gradients), 0U);
  // Four micro-batches a step, three steps: data, forward and backward of each.
  auto forwards = 0;
  for (const auto& span : profiled.timeline->ranks[0].spans) {
    forwards += span.kind == Span::Kind::phase && span.phase == StepPhase::forward;
  }
  EXPECT_EQ(forwards, 12);
  auto config = profiled_config();
  config.profile.steps = "";
  const auto plain = run_profiled(1, config);
  EXPECT_FALSE(plain.timeline);
  EXPECT_EQ(profiled.losses, plain.losses);
}

TEST(Profile, OfTwoRanksIsOneTraceAndChangesNoLoss) {
  for (const auto strategy : {config::Strategy::ddp, config::Strategy::data_parallel}) {
    auto config = profiled_config();
    config.parallel.strategy = strategy;
    const auto profiled = run_profiled(2, config);
    ASSERT_TRUE(profiled.timeline) << name_of(strategy);
    ASSERT_EQ(profiled.timeline->ranks.size(), 2U);
    for (const auto& rank : profiled.timeline->ranks) {
      expect_nested(rank);
      EXPECT_GE(count_kind(rank, Span::Kind::gradients), 6U)
          << "several buckets a step";
    }
    const auto split = monitor::split_of(*profiled.timeline);
    EXPECT_GT(split.of(StepPhase::communication), 0);
    EXPECT_GT(split.travel_seconds, 0);
    config.profile.steps = "";
    EXPECT_EQ(profiled.losses, run_profiled(2, config).losses) << name_of(strategy);
  }
}

// Steps of two ranks wait for each other's gradients: on one clock they overlap.
TEST(Profile, ClocksOfRanksAreOne) {
  const auto profiled = run_profiled(2, profiled_config());
  ASSERT_TRUE(profiled.timeline);
  std::map<std::int64_t, std::vector<const Span*>> steps;
  for (const auto& rank : profiled.timeline->ranks) {
    for (const auto& span : rank.spans) {
      if (span.kind == Span::Kind::step) steps[span.step].push_back(&span);
    }
  }
  for (const auto& [number, both] : steps) {
    ASSERT_EQ(both.size(), 2U);
    EXPECT_LT(both[0]->begin, both[1]->end) << number;
    EXPECT_LT(both[1]->begin, both[0]->end) << number;
  }
}

TEST(Profile, TheTraceNamesRanksAndTracks) {
  const auto profiled = run_profiled(2, profiled_config());
  const auto json = nlohmann::json::parse(profiled.trace, nullptr, false);
  std::set<std::string> names;
  for (const auto& event : json["traceEvents"]) {
    ASSERT_TRUE(event.contains("ph") && event.contains("pid"));
    EXPECT_GE(event.value("dur", 0.0), 0);
    EXPECT_GE(event.value("ts", 0.0), 0);
    if (event["ph"] == "M" && event["args"].contains("name")) {
      names.insert(event["args"]["name"]);
    }
  }
  EXPECT_THAT(names, testing::ElementsAre("communication", "rank 0 (cpu)",
                                          "rank 1 (cpu)", "steps"));
}

TEST(Profile, ForwardAndBackwardStandInEveryLineOfMetrics) {
  auto config = profiled_config();
  config.profile.steps = "";
  const auto run = run_profiled(1, config);
  for (const auto& line : run.metrics) {
    if (line.split != monitor::Split::train) continue;
    EXPECT_GT(line.find("forward_seconds").value_or(0), 0);
    EXPECT_GT(line.find("backward_seconds").value_or(0), 0);
  }
}

// What is computed to see whether it fits is no step; run_profiled() holds the sums
// against the time of the steps.
TEST(Profile, TriesOfAMicroBatchDoNotCount) {
  auto config = profiled_config();
  config.memory.find_micro = true;
  config.memory.host_limit = 1 << 30;
  EXPECT_TRUE(run_profiled(1, config).timeline);
}

TEST(Profile, ARunThatEndsBeforeItLeavesNoTrace) {
  auto config = profiled_config();
  config.profile.steps = "100:200";
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path(), {.name = "r"});
  test::as_processes(1, [&](int) {
    monitor::Console console({.write = [](std::string_view) {}});
    const StopRequest stop;
    Reporter reporter({run, console}, config.monitor, {});
    auto world = comm::join({}, {});
    EXPECT_FALSE(train(test::resolved(config), {run, reporter, stop, world}).split);
  });
  EXPECT_FALSE(std::filesystem::exists(run.trace()));
}

TEST(Profile, TheClockOfARankOnTheSameHostIsNotAhead) {
  test::as_processes(3, [port = test::free_port()](int rank) {
    auto world = comm::join(test::environment_of(rank, 3, port), {});
    EXPECT_EQ(profile::clock_ahead(world.cpu()), 0);
    world.close();
  });
}

TEST(Profile, AddsUpInTheTableOfTheResult) {
  Result result;
  result.steps = 10;
  result.forward_seconds = 0.2;
  result.backward_seconds = 0.4;
  result.split = monitor::PhaseSplit{.steps = 3, .ranks = 2, .step_seconds = 0.1};
  EXPECT_THAT(to_table(result),
              HasSubstr("forward 20.00 ms, backward 40.00 ms a step"));
  EXPECT_THAT(to_table(result), HasSubstr("mean of 3 steps, 2 ranks"));
  const auto json = nlohmann::json::parse(to_json(result));
  EXPECT_DOUBLE_EQ(json["forward_seconds"].get<double>(), 0.02);
  EXPECT_EQ(json["profile_steps"], 3);
  EXPECT_EQ(json["profile_step_seconds"], 0.1);
}

TEST(ProfileGpu, IsReadFromEventsWhenTheRunIsOver) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  auto config = profiled_config();
  config.parallel.device = config::Device::cuda;
  config.data.pin_memory = true;
  const auto once = [&] {
    const files::TemporaryDirectory folder;
    const auto run = run::RunDirectory::create(folder.path(), {.name = "r"});
    monitor::Console console({.write = [](std::string_view) {}});
    const StopRequest stop;
    {
      Reporter reporter({run, console}, config.monitor, {});
      comm::JoinOptions options;
      options.device = torch::Device(torch::kCUDA, 0);
      auto world = comm::join({}, options);
      train(test::resolved(config), {run, reporter, stop, world});
    }
    return read_run(run.path());
  };
  const auto profiled = once();
  ASSERT_TRUE(profiled.timeline);
  EXPECT_EQ(profiled.timeline->device, "cuda");
  expect_nested(profiled.timeline->ranks.at(0));
  for (const auto& line : profiled.metrics) {
    EXPECT_FALSE(line.find("forward_seconds")) << "it would have to wait to know";
  }
}

TEST(Divergence, IsALossFarAboveItsLeastOrNone) {
  Divergence four(4);
  EXPECT_FALSE(four.observe(2));
  EXPECT_FALSE(four.observe(1));
  EXPECT_FALSE(four.observe(4));
  EXPECT_TRUE(four.observe(1000));
  EXPECT_THAT(four.because(), HasSubstr("exceeds 4 x its minimum"));
  Divergence none(4);
  EXPECT_TRUE(none.observe(std::nan("")));
  EXPECT_THAT(none.because(), HasSubstr("loss is NaN"));
  Divergence beyond(4);
  EXPECT_TRUE(beyond.observe(std::numeric_limits<double>::infinity()));
  EXPECT_THAT(beyond.because(), HasSubstr("loss is infinite"));
  Divergence off(0);
  EXPECT_FALSE(off.observe(1));
  EXPECT_FALSE(off.observe(1e9));
}

TEST(Divergence, EndsARunOnAllRanks) {
  auto config = profiled_config();
  config.profile.steps = "";
  config.train.steps = 60;
  config.optim.name = config::Optimizer::sgd;
  config.optim.lr = 100;
  config.schedule.name = config::Schedule::sweep;
  config.schedule.start_ratio = 1e-6;
  config.train.on_nonfinite = config::OnNonfinite::skip;
  config.early_stop.divergence = 4;
  const auto run = run_profiled(2, config);
  ASSERT_GT(run.metrics.size(), 5U);
  EXPECT_LT(run.metrics.back().step, 60);
  config.early_stop.divergence = 0;
  config.train.steps = 8;
  EXPECT_EQ(run_profiled(2, config).metrics.back().step, 8);
}

}  // namespace
}  // namespace lockstep::train
