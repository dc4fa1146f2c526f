#include "lockstep/monitor/timeline.h"

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "tests/support/support.h"

namespace lockstep::monitor {
namespace {

using ::testing::HasSubstr;

Span phase_span(StepPhase phase, double begin, double end) {
  return {
      .kind = Span::Kind::phase, .phase = phase, .step = 7, .begin = begin, .end = end};
}

Span bucket_span(std::int64_t index, double begin, double end) {
  return {.kind = Span::Kind::gradients,
          .step = 7,
          .index = index,
          .begin = begin,
          .end = end};
}

// A step of ten seconds on each of two ranks; two buckets overlap, one reaches beyond
// the backward pass.
Timeline two_ranks() {
  Timeline timeline{.device = "cpu", .backend = "shm"};
  for (const double late : {0.0, 1.0}) {
    const double t = 1000 + late;
    timeline.ranks.push_back(
        {.spans = {phase_span(StepPhase::data, t, t + 1),
                   phase_span(StepPhase::forward, t + 1, t + 3),
                   bucket_span(0, t + 4, t + 6),
                   bucket_span(1, t + 5, t + 8),
                   phase_span(StepPhase::backward, t + 3, t + 7),
                   phase_span(StepPhase::communication, t + 7, t + 8),
                   phase_span(StepPhase::optimizer, t + 8, t + 9.5),
                   {.step = 7, .index = 32, .begin = t, .end = t + 10}},
         .cpu_seconds = 9,
         .peak_memory_bytes = 1 << 20});
  }
  return timeline;
}

TEST(Timeline, IsSplitIntoPhasesAndWhatTravelsBehindThem) {
  const auto split = split_of(two_ranks());
  EXPECT_EQ(split.steps, 1);
  EXPECT_EQ(split.ranks, 2);
  EXPECT_DOUBLE_EQ(split.step_seconds, 10);
  EXPECT_DOUBLE_EQ(split.of(StepPhase::data), 1);
  EXPECT_DOUBLE_EQ(split.of(StepPhase::forward), 2);
  EXPECT_DOUBLE_EQ(split.of(StepPhase::backward), 4);
  EXPECT_DOUBLE_EQ(split.of(StepPhase::communication), 1);
  EXPECT_DOUBLE_EQ(split.of(StepPhase::optimizer), 1.5);
  EXPECT_DOUBLE_EQ(split.travel_seconds, 4) << "the overlap of two buckets counts once";
  EXPECT_DOUBLE_EQ(split.other_seconds(), 0.5);
  const auto table = to_table(split);
  EXPECT_THAT(table, HasSubstr("exposed; 4000.000 ms in all"));
  EXPECT_THAT(table, HasSubstr("mean of 1 steps, 2 ranks"));
}

TEST(Timeline, IsReadBackFromTheTrace) {
  const files::TemporaryDirectory folder;
  const auto written = two_ranks();
  files::write_atomically(folder.path() / "trace.json", to_chrome_trace(written));
  const auto read = read_chrome_trace(folder.path() / "trace.json");
  EXPECT_EQ(read.device, "cpu");
  EXPECT_EQ(read.backend, "shm");
  ASSERT_EQ(read.ranks.size(), 2U);
  EXPECT_EQ(read.ranks[1].peak_memory_bytes, 1 << 20);
  EXPECT_EQ(read.ranks[1].spans.size(), written.ranks[1].spans.size());
  EXPECT_NEAR(read.begin(), 1000, 1e-9);  // a trace has nanoseconds
  EXPECT_NEAR(read.end(), 1011, 1e-9);    // as above
  EXPECT_NEAR(split_of(read).of(StepPhase::optimizer), 1.5, 1e-9);  // as above
  EXPECT_NEAR(split_of(read).travel_seconds, 4, 1e-9);              // as above
  EXPECT_EQ(step_seconds(read).size(), 2U);
}

// Viewers can not draw events of one track that cross.
TEST(Timeline, TheTraceHasARankAsAProcessAndNoEventsThatCross) {
  const auto json = nlohmann::json::parse(to_chrome_trace(two_ranks()));
  std::map<std::pair<int, int>, double> free_from;
  std::vector<std::string> processes;
  for (const auto& event : json["traceEvents"]) {
    if (event["name"] == "process_name") processes.push_back(event["args"]["name"]);
    if (event["ph"] != "X" || event["tid"] == 0) continue;
    auto& end = free_from[{event["pid"], event["tid"]}];
    EXPECT_GE(event["ts"].get<double>(), end) << event;
    end = event["ts"].get<double>() + event["dur"].get<double>();
  }
  EXPECT_EQ(free_from.size(), 2U);
  EXPECT_THAT(processes, ::testing::ElementsAre("rank 0 (cpu)", "rank 1 (cpu)"));
}

TEST(Timeline, WhatIsNoTraceIsRefused) {
  const files::TemporaryDirectory folder;
  const auto path = folder.path() / "trace.json";
  for (const std::string text :
       {"", "{", "[]", "{}", R"({"otherData":{},"traceEvents":[]})",
        R"({"otherData":{"device":"cpu","backend":"","clock_seconds":0,"ranks":[]},)"
        R"("traceEvents":[{"ph":"X","pid":0}]})"}) {
    test::write_file(path, text);
    EXPECT_THAT(test::error_text(Fault::io, [&] { read_chrome_trace(path); }),
                HasSubstr("is not a trace of a training run"))
        << text;
  }
}

}  // namespace
}  // namespace lockstep::monitor
