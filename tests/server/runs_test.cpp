// What is read of a run: numbers by step and thinned, events, logs, checkpoints with
// their bytes, and streams that resume at a byte.
#include <nlohmann/json.hpp>

#include "lockstep/server/router.h"
#include "tests/service/rig.h"

namespace lockstep::server {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

class RunsTest : public ::testing::Test {
 protected:
  RunsTest()
      : service_({.state = state_.path(),
                  .caller = test::quiet_caller("/nonexistent/lockstep"),
                  .machine = [] { return test::machine_with(0); }}),
        router_(service_, {}) {
    service::Submission wanted;
    wanted.recipe.text = test::short_recipe(5);
    id_ = service_.submit(ada_, wanted).id;
    std::filesystem::create_directories(folder().path() / "attempts");
    run::RunDirectory::create(folder().path(), {.name = "run"});
  }

  service::JobFolder folder() { return service_.folder(ada_, id_); }

  Response ask(const std::string& below, Headers headers = {}) {
    return router_.handle_as(
        {.method = "GET", .target = "/v1/runs/" + id_ + below, .headers = headers},
        ada_);
  }

  // One line for each step, of training; every tenth has one of an evaluation, too.
  void write_metrics(int steps) {
    std::string lines;
    for (int step = 1; step <= steps; ++step) {
      const auto line = [&](const char* split) {
        return str("{\"step\":", step, ",\"split\":\"", split, "\",\"loss\":1}\n");
      };
      lines += line("train");
      if (step % 10 == 0) lines += line("eval");
    }
    test::write_file(folder().run() / "metrics.jsonl", lines);
  }

  std::vector<int> steps_of(const std::string& query) {
    const auto response = ask("/metrics" + query);
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<int> steps;
    const auto json = Json::parse(response.body);
    for (const auto& item : json.at("items")) steps.push_back(item.at("step"));
    return steps;
  }

  static std::string all_of(const Response& response) {
    std::string bytes;
    if (!response.stream) return response.body;
    while (true) {
      const auto piece = response.stream->next();
      bytes += piece;
      if (piece.empty()) return bytes;
    }
  }

  files::TemporaryDirectory state_;
  const service::Identity ada_ = test::as("ada");
  service::Service service_;
  Router router_;
  std::string id_;
};

TEST_F(RunsTest, MetricsComeByStepsAndSplit) {
  write_metrics(30);
  EXPECT_EQ(steps_of("").size(), 33U);
  EXPECT_THAT(steps_of("?from=9&to=11"), ElementsAre(9, 10, 10, 11));
  EXPECT_THAT(steps_of("?from=9&to=11&split=train"), ElementsAre(9, 10, 11));
  EXPECT_THAT(steps_of("?split=eval"), ElementsAre(10, 20, 30));
  EXPECT_TRUE(steps_of("?from=31").empty());
}

TEST_F(RunsTest, ManyMetricsAreThinnedAtEvenDistancesWithBothEnds) {
  write_metrics(1000);
  EXPECT_THAT(steps_of("?split=train&points=4"), ElementsAre(1, 334, 667, 1000));
  EXPECT_EQ(steps_of("").size(), 1000U);  // of 1100
  EXPECT_EQ(steps_of("?points=5000").size(), 1100U);
  EXPECT_EQ(ask("/metrics?points=many").status, 400);
  EXPECT_EQ(ask("/metrics?from=-1").status, 400);
}

TEST_F(RunsTest, EventsAreThoseOfTheRunAndTheLastOnesIfFewAreWanted) {
  run::EventWriter events(folder().run() / "events.jsonl");
  events.write("started", {{"total_steps", std::int64_t{5}}});
  events.write("done", {{"reason", std::string("all steps")}});
  const auto all = Json::parse(ask("/events").body).at("items");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0]["event"], "started");
  EXPECT_EQ(all[0]["total_steps"], 5);
  const auto last = Json::parse(ask("/events?limit=1").body).at("items");
  ASSERT_EQ(last.size(), 1U);
  EXPECT_EQ(last[0]["reason"], "all steps");
}

TEST_F(RunsTest, LogsAreOfAnAttemptOrOfARank) {
  std::filesystem::create_directories(folder().run() / "logs");
  test::write_file(folder().log(1), "first\n");
  test::write_file(folder().log(2), "second\n");
  test::write_file(folder().run() / "logs" / "rank_3.log", "rank\n");
  EXPECT_EQ(ask("/logs").body, "first\n");
  EXPECT_EQ(ask("/logs?attempt=2").body, "second\n");
  EXPECT_EQ(ask("/logs?rank=3").body, "rank\n");
  EXPECT_EQ(ask("/logs?rank=4").body, "");
}

TEST_F(RunsTest, FilesOfCheckpointsAndWeightsComeWithAllTheirBytes) {
  const auto step = folder().run() / "checkpoints" / "step_20";
  std::filesystem::create_directories(step);
  std::string bytes;
  for (int i = 0; i < 300'000; ++i) bytes += static_cast<char>(i * 7);
  test::write_file(step / "rank_0.safetensors", bytes);
  test::write_file(step / "manifest.json", "{}");
  const auto items = Json::parse(ask("/checkpoints").body).at("items");
  ASSERT_EQ(items.size(), 1U);
  EXPECT_EQ(items[0]["step"], 20);
  EXPECT_EQ(items[0]["files"].size(), 2U);
  EXPECT_EQ(all_of(ask("/checkpoints/20/rank_0.safetensors")), bytes);
  EXPECT_EQ(ask("/checkpoints/21/rank_0.safetensors").status, 404);
  EXPECT_EQ(ask("/checkpoints/20/rank_1.safetensors").status, 404);
  EXPECT_EQ(ask("/weights").status, 404);
  test::write_file(folder().run() / "model.safetensors", bytes);
  EXPECT_EQ(all_of(ask("/weights")), bytes);
}

// What a client has seen it names by its last byte, and the next line is what it gets.
TEST_F(RunsTest, AStreamResumesBehindTheLastEventOfItsClient) {
  const std::string first = "{\"step\":1}\n";
  const std::string second = "{\"step\":2}\n";
  test::write_file(folder().run() / "metrics.jsonl", first + second);
  const auto whole = all_of(ask("/metrics/stream"));
  EXPECT_THAT(whole, HasSubstr("{\"step\":1}"));
  EXPECT_THAT(whole, HasSubstr(str("id: ", first.size())));
  const auto is_rest = [&](const std::string& text) {
    return text.find("{\"step\":1}") == std::string::npos &&
           text.find("{\"step\":2}") != std::string::npos;
  };
  EXPECT_TRUE(
      is_rest(all_of(ask("/metrics/stream", {{"last-event-id", str(first.size())}}))));
  EXPECT_TRUE(is_rest(all_of(ask(str("/metrics/stream?from_byte=", first.size())))));
  // In the middle of a line the next one comes first.
  EXPECT_TRUE(is_rest(all_of(ask("/metrics/stream?from_byte=3"))));
  for (const auto* wrong : {"x", "-1", "1.5", "99999999999999999999"}) {
    EXPECT_EQ(ask("/metrics/stream", {{"last-event-id", wrong}}).status, 400) << wrong;
  }
}

}  // namespace
}  // namespace lockstep::server
