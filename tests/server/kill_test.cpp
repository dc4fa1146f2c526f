// The server as a process, killed at any instant: no job is lost, none starts twice.
// LOCKSTEP_SOAK_KILLS says how often (scripts/soak.sh kills it more).
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include <nlohmann/json.hpp>

#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "lockstep/server/http.h"
#include "lockstep/service/attempt.h"
#include "lockstep/service/audit.h"
#include "tests/service/rig.h"

namespace lockstep::server {
namespace {

using Json = nlohmann::ordered_json;

int kills() {
  const char* wanted = std::getenv("LOCKSTEP_SOAK_KILLS");
  return wanted == nullptr ? 12 : std::atoi(wanted);
}

class KilledServer : public ::testing::Test {
 protected:
  void start() {
    server_.emplace(process::Child::start(
        {.arguments = {installation_.program(), "serve", "--insecure-local",
                       "http.port=0", "queue.cores=2", "queue.retry_delay=10ms",
                       "limits.changes_per_minute=1000000",
                       "limits.requests_per_minute=1000000",
                       "store.dir=" + state_.path().string()},
         .out = process::Stream::pipe,
         .err = process::Stream::discard}));
    url_.clear();
    char c = 0;
    while (::read(server_->out().get(), &c, 1) == 1 && c != '\n') url_ += c;
    ASSERT_FALSE(url_.empty()) << "the server did not start";
  }

  void kill() {
    server_->signal(SIGKILL);
    server_->wait();
    server_.reset();
  }

  // An answer may be lost with the server; what it was about may have happened.
  std::string submit(int steps) {
    const auto answer =
        send_request({.url = url_}, {.method = "POST",
                                     .target = "/v1/jobs",
                                     .body = "{\"max_retries\": 50, \"recipe\": " +
                                             test::short_recipe(steps) + "}"});
    EXPECT_EQ(answer.status, 201) << answer.body;
    return Json::parse(answer.body).at("id").get<std::string>();
  }

  std::string state_of(const std::string& id) {
    const auto answer =
        send_request({.url = url_}, {.method = "GET", .target = "/v1/jobs/" + id});
    return Json::parse(answer.body).value("state", "");
  }

  service::JobFolder folder(const std::string& id) const {
    return service::JobFolder(state_.path() / "jobs" / id);
  }

  void expect_whole(const std::string& id, int steps) {
    const auto run = folder(id).run();
    EXPECT_EQ(run::count_events(run / "events.jsonl", "two_at_a_time"), 0);
    std::int64_t next = 1;
    for (const auto& line : monitor::read_metrics(run / "metrics.jsonl")) {
      ASSERT_EQ(line.step, next++) << id;
    }
    EXPECT_EQ(next - 1, steps) << id;
  }

  test::FakeInstallation installation_;
  files::TemporaryDirectory state_;
  std::optional<process::Child> server_;
  std::string url_;
};

TEST_F(KilledServer, LosesNoJobAndStartsNoneTwice) {
  constexpr int kSteps = 30;
  std::mt19937 random(7);
  std::vector<std::string> jobs;
  start();
  for (int round = 0; round < kills(); ++round) {
    for (int i = 0; i < 3; ++i) jobs.push_back(submit(kSteps));
    // At a random moment of starting, training and ending.
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 150));
    kill();
    start();
  }
  for (const auto& id : jobs) {
    ASSERT_TRUE(test::eventually([&] { return state_of(id) == "done"; }))
        << id << " is " << state_of(id);
    expect_whole(id, kSteps);
    EXPECT_EQ(run::count_events(folder(id).run() / "events.jsonl", "started"), 1) << id;
  }
  kill();
  service::Store store(state_.path() / "lockstep.db");
  EXPECT_EQ(store.jobs({.limit = 100'000}).size(), jobs.size());
  EXPECT_EQ(service::audit(store, 0, 100'000).size(), jobs.size());
  EXPECT_FALSE(service::first_altered(store));
  for (const auto& id : jobs) {
    EXPECT_EQ(store.history(id).front().state, service::JobState::queued);
    EXPECT_EQ(store.history(id).back().state, service::JobState::done);
  }
}

TEST_F(KilledServer, AKilledSupervisorIsTriedAgainAndLosesNoStep) {
  constexpr int kSteps = 300;
  start();
  const auto id = submit(kSteps);
  std::mt19937 random(11);
  int killed = 0;
  for (int attempt = 1; attempt < 1 + std::max(3, kills() / 4); ++attempt) {
    ASSERT_TRUE(test::eventually([&] {
      const auto status = service::look_at_attempt(folder(id), attempt).status;
      return status == service::AttemptStatus::alive ||
             status == service::AttemptStatus::ended;
    }));
    std::this_thread::sleep_for(std::chrono::milliseconds(random() % 200));
    const auto view = service::look_at_attempt(folder(id), attempt);
    if (view.status != service::AttemptStatus::alive) break;
    killed += service::signal_supervisor(*view.supervisor, SIGKILL) ? 1 : 0;
  }
  EXPECT_GT(killed, 0);
  ASSERT_TRUE(test::eventually([&] { return state_of(id) == "done"; })) << state_of(id);
  expect_whole(id, kSteps);
}

}  // namespace
}  // namespace lockstep::server
