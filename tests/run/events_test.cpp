#include "lockstep/run/events.h"

#include "tests/support/support.h"

namespace lockstep {
namespace {

using run::EventWriter;

TEST(Events, ALineHasTimeAndKindFirst) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "events.jsonl";
  ManualClock clock;
  EventWriter events(path, clock);
  events.write("started",
               {{"ranks", std::int64_t{1}}, {"text", std::string("a\"b\n")}});
  events.write("done");
  EXPECT_EQ(test::read_file(path),
            "{\"time\":1700000000.0,\"event\":\"started\",\"ranks\":1,"
            "\"text\":\"a\\\"b\\n\"}\n"
            "{\"time\":1700000000.0,\"event\":\"done\"}\n");
}

TEST(Events, TheLastOnesComeOldestFirst) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "events.jsonl";
  EXPECT_TRUE(run::last_events(path, 3).empty());
  EventWriter events(path);
  for (int i = 0; i < 5; ++i) events.write("step", {{"i", std::int64_t{i}}});
  const auto last = run::last_events(path, 2);
  ASSERT_EQ(last.size(), 2U);
  EXPECT_EQ(std::get<std::int64_t>(last[0].fields[0].value), 3);
  EXPECT_EQ(std::get<std::int64_t>(last[1].fields[0].value), 4);
  EXPECT_EQ(last[1].kind, "step");
}

TEST(Events, ATornLineIsLeftOut) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "events.jsonl";
  EventWriter(path).write("started");
  test::write_file(path, test::read_file(path) + "{\"time\":1,\"event\":\"do");
  const auto last = run::last_events(path, 10);
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0].kind, "started");
}

TEST(Events, AreCountedByTheirKind) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "events.jsonl";
  EXPECT_EQ(run::count_events(path, "started"), 0);
  EventWriter events(path);
  events.write("started");
  events.write("alert", {{"text", std::string("\"event\":\"started\"")}});
  events.write("started");
  EXPECT_EQ(run::count_events(path, "started"), 2);
}

TEST(Events, OnlyTheLastAttemptSaysHowTheRunHasEnded) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "events.jsonl";
  EXPECT_EQ(run::last_done(path), std::nullopt);
  EventWriter events(path);
  events.write("started");
  events.write(
      "done",
      {{"steps", std::int64_t{7}}, {"reason", std::string("no hope")}, {"over", true}});
  events.write("launched");  // of somebody who has not come further yet
  const auto done = run::last_done(path);
  ASSERT_TRUE(done);
  EXPECT_EQ(done->steps, 7);
  EXPECT_EQ(done->reason, "no hope");
  EXPECT_TRUE(done->over);
  events.write("started");
  EXPECT_EQ(run::last_done(path), std::nullopt);
  events.write("done", {{"steps", std::int64_t{9}}, {"over", false}});
  EXPECT_FALSE(run::last_done(path)->over);
}

TEST(Fields, NestedValuesArriveAsTheirJson) {
  const auto fields = run::parse_json_line("{\"a\":[1,2],\"b\":null,\"c\":true}");
  ASSERT_TRUE(fields);
  ASSERT_EQ(fields->size(), 3U);
  EXPECT_EQ(std::get<std::string>((*fields)[0].value), "[1,2]");
  EXPECT_EQ(std::get<std::string>((*fields)[1].value), "null");
  EXPECT_TRUE(std::get<bool>((*fields)[2].value));
  EXPECT_EQ(run::number_of((*fields)[2]), std::nullopt);
}

TEST(Fields, AnUnsignedNumberBeyondInt64IsADouble) {
  const auto fields = run::parse_json_line("{\"a\":18446744073709551615}");
  ASSERT_TRUE(fields);
  EXPECT_EQ(run::number_of((*fields)[0]), 18446744073709551615.0);
}

}  // namespace
}  // namespace lockstep
