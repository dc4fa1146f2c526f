// What a tracking server is told, by one that stands here as a function;
// scripts/test_mlflow.sh has a real one.
#include <map>

#include <nlohmann/json.hpp>

#include "lockstep/jobs/mlflow_sync.h"
#include "lockstep/monitor/sink.h"
#include "tests/run/run_rig.h"

namespace lockstep::test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Json = nlohmann::ordered_json;

// Keeps what it was told, as MLflow does.
struct FakeMlflow {
  jobs::HttpAnswer answer(const jobs::HttpQuestion& question) {
    const std::lock_guard lock(mutex);
    questions.push_back(question);
    if (is_away) throw Error(Fault::io, "connection refused");
    const std::string api = "/api/2.0/mlflow/";
    const auto path = question.url.substr(question.url.find(api) + api.size());
    const auto body = Json::parse(question.body, nullptr, false);
    if (path == "experiments/get-by-name?experiment_name=my%20runs") {
      if (experiment.empty()) return {404, "{}"};
      return {200, Json({{"experiment", {{"experiment_id", experiment}}}}).dump()};
    }
    if (path == "experiments/create") {
      experiment = "7";
      return {200, R"({"experiment_id": "7"})"};
    }
    if (path == "runs/create") {
      runs.push_back(body.at("run_name"));
      return {200, R"({"run": {"info": {"run_id": "r1"}}})"};
    }
    EXPECT_EQ(body.value("run_id", ""), "r1") << path;
    if (path == "runs/update") statuses.push_back(body.at("status"));
    if (path == "runs/log-batch") {
      for (const auto& metric : body.value("metrics", Json::array())) {
        metrics[metric.at("key")].push_back(metric.at("step"));
      }
      params += body.value("params", Json::array()).size();
    }
    return {200, "{}"};
  }

  std::mutex mutex;  // guards the rest
  bool is_away = false;
  std::string experiment;
  std::vector<std::string> runs, statuses;
  std::map<std::string, std::vector<int>> metrics;
  std::size_t params = 0;
  std::vector<jobs::HttpQuestion> questions;
};

class MlflowTest : public ::testing::Test {
 protected:
  MlflowTest() {
    config_.sinks = {config::Sink::mlflow};
    config_.mlflow_uri = "http://tracking:5000/";
    config_.mlflow_experiment = "my runs";
    config_.mlflow_sync_every = std::chrono::milliseconds(1);
    caller_.warn = [this](std::string_view) { ++warnings_; };
    caller_.ask_http = [this](const auto& question) {
      return server_.answer(question);
    };
  }

  std::unique_ptr<monitor::Sink> sink() {
    return monitor::make_sink(config::Sink::mlflow,
                              {.run = rig_.run, .config = config_, .gpus = no_gpus_});
  }
  jobs::MlflowSync sync() { return {rig_.run.path(), config_, caller_}; }

  RunRig rig_;
  config::MonitorConfig config_;
  const std::vector<hardware::Gpu> no_gpus_;
  jobs::Caller caller_;
  FakeMlflow server_;
  std::atomic<int> warnings_{0};
};

TEST_F(MlflowTest, ARunIsToldWhileItGoesOnAndAtItsEnd) {
  auto sending = sync();
  const auto writer = sink();
  writer->metrics({.step = 1, .loss = 0.5, .more = {{"lr", 0.1}}});
  ASSERT_TRUE(eventually([&] {
    const std::lock_guard lock(server_.mutex);
    return server_.metrics["train/loss"].size() == 1;
  }));
  writer->metrics({.step = 2, .loss = 0.25, .more = {}});
  writer->finish({.exit = 0, .steps = 2});
  EXPECT_EQ(sending.finish(false), "");
  EXPECT_EQ(server_.experiment, "7");
  EXPECT_THAT(server_.runs, ElementsAre(rig_.run.read_record().id));
  EXPECT_THAT(server_.metrics["train/loss"], ElementsAre(1, 2));
  EXPECT_THAT(server_.metrics["train/lr"], ElementsAre(1));
  EXPECT_THAT(server_.statuses, ElementsAre("FINISHED"));
}

TEST_F(MlflowTest, ARunThatIsTakenUpAgainIsOneRunThere) {
  for (int attempt = 1; attempt <= 2; ++attempt) {
    auto sending = sync();
    const auto writer = sink();
    writer->metrics({.step = attempt, .loss = 0.5, .more = {}});
    writer->finish({.exit = attempt == 1 ? kExitStopped : kExitOk, .steps = attempt});
    EXPECT_EQ(sending.finish(false), "");
  }
  EXPECT_EQ(server_.runs.size(), 1U);
  EXPECT_THAT(server_.metrics["train/loss"], ElementsAre(1, 2));
  EXPECT_THAT(server_.statuses, ElementsAre("KILLED", "RUNNING", "FINISHED"));
}

TEST_F(MlflowTest, ARunThatDiesWithoutAWordHasFailed) {
  auto sending = sync();
  sink()->metrics({.step = 1, .loss = 0.5, .more = {}});
  EXPECT_EQ(sending.finish(true), "");
  EXPECT_THAT(server_.statuses, ElementsAre("FAILED"));
}

TEST_F(MlflowTest, AServerThatIsAwayIsSaidOnceAndGetsAllOfItLater) {
  server_.is_away = true;
  {
    auto sending = sync();
    sink()->metrics({.step = 1, .loss = 0.5, .more = {}});
    ASSERT_TRUE(eventually([&] {
      const std::lock_guard lock(server_.mutex);
      return server_.questions.size() > 3;
    }));
    EXPECT_THAT(sending.finish(false), HasSubstr("connection refused"));
  }
  EXPECT_EQ(warnings_, 1);
  server_.is_away = false;
  EXPECT_EQ(sync().finish(false), "");
  EXPECT_THAT(server_.metrics["train/loss"], ElementsAre(1));
}

TEST_F(MlflowTest, WhoAsksIsSaidAsMlflowsClientDoes) {
  caller_.environment = {{"MLFLOW_TRACKING_USERNAME", "ada"},
                         {"MLFLOW_TRACKING_PASSWORD", "secret"}};
  sink();
  EXPECT_EQ(sync().finish(false), "");
  ASSERT_FALSE(server_.questions.empty());
  // `printf ada:secret | base64`
  EXPECT_EQ(server_.questions[0].headers.back().second, "Basic YWRhOnNlY3JldA==");
  EXPECT_THAT(read_file(rig_.run.path() / "mlflow.json"),
              ::testing::Not(HasSubstr("secret")));
}

TEST_F(MlflowTest, WithoutAServerTheSinkIsRefusedAndWithoutTheSinkNothingIsAsked) {
  config_.mlflow_uri = "";
  EXPECT_THAT(error_text(Fault::config, [&] { sync(); }),
              HasSubstr("MLFLOW_TRACKING_URI"));
  caller_.environment = {{"MLFLOW_TRACKING_URI", "http://tracking"}};
  EXPECT_EQ(sync().finish(false), "");
  config_.mlflow_uri = "http://ada:secret@tracking";
  EXPECT_TRUE(error_of([&] { sync(); }));
  config_.sinks = {config::Sink::jsonl};
  EXPECT_EQ(sync().finish(false), "");
  EXPECT_TRUE(server_.questions.empty());
}

}  // namespace
}  // namespace lockstep::test
