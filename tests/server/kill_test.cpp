// The server and the supervisors of jobs, killed at any instant: no job is lost, none
// starts twice. LOCKSTEP_SOAK_KILLS and LOCKSTEP_SOAK_SUPERVISOR_KILLS say how often
// (scripts/soak.sh service kills them more).
#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <random>
#include <thread>

#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "lockstep/service/audit.h"
#include "tests/server/support/served.h"

namespace lockstep::server {
namespace {

using Json = nlohmann::ordered_json;

int number_from(const char* variable, int otherwise) {
  const char* wanted = std::getenv(variable);
  return wanted == nullptr ? otherwise : std::atoi(wanted);
}

class KillTest : public ::testing::Test {
 protected:
  std::int64_t steps_of(const std::string& id) {
    const auto last = monitor::last_metrics(served_.folder(id).run() / "metrics.jsonl",
                                            monitor::Split::train);
    return last ? last->step : 0;
  }

  // Every step once and in order: none was lost, and no two trained at a time.
  void expect_whole(const std::string& id, int steps) {
    const auto run = served_.folder(id).run();
    EXPECT_EQ(run::count_events(run / "events.jsonl", "two_at_a_time"), 0) << id;
    std::int64_t next = 1;
    for (const auto& line : monitor::read_metrics(run / "metrics.jsonl")) {
      ASSERT_EQ(line.step, next++) << id;
    }
    EXPECT_EQ(next - 1, steps) << id;
  }

  // Submits two jobs and then looks at one, until there is no server any more. Returns
  // those that were taken.
  std::vector<std::string> asked_until_the_end(int steps,
                                               const std::string& looked_at) {
    constexpr std::size_t kJobs = 2;
    std::vector<std::string> jobs;
    try {
      while (true) {
        if (jobs.size() < kJobs) {
          jobs.push_back(served_.submit(steps));
        } else {
          served_.state_of(looked_at);
        }
      }
    } catch (const Error&) {
      return jobs;
    }
  }

  test::Served served_;
  std::mt19937 random_{static_cast<unsigned>(number_from("LOCKSTEP_SOAK_SEED", 7))};
};

TEST_F(KillTest, AKilledServerLosesNoJobAndStartsNoneTwice) {
  constexpr int kSteps = 30;
  const int kills = number_from("LOCKSTEP_SOAK_KILLS", 12);
  std::vector<std::string> jobs;
  served_.start();
  jobs.push_back(served_.submit(kSteps));
  for (int round = 0; round < kills; ++round) {
    std::jthread clients([&, last = jobs.back()] {
      for (const auto& id : asked_until_the_end(kSteps, last)) jobs.push_back(id);
    });
    // At a random moment of waiting, starting, training and ending: so many looks, each
    // of which takes a different time.
    for (auto looks = random_() % 40; looks > 0; --looks)
      served_.ask("GET", "/v1/jobs");
    served_.signal(SIGKILL);
    clients.join();
    served_.wait();
    served_.start();
  }
  for (const auto& id : jobs) {
    ASSERT_TRUE(served_.reaches(id, "done")) << id << " is " << served_.state_of(id);
    expect_whole(id, kSteps);
    EXPECT_EQ(run::count_events(served_.folder(id).run() / "events.jsonl", "started"),
              1)
        << id;
  }
  served_.kill();
  service::Store store(served_.state() / "lockstep.db");
  // Some may have been taken whose senders have had no answer.
  const auto taken = store.jobs({.limit = 100'000});
  EXPECT_GE(taken.size(), jobs.size());
  EXPECT_EQ(service::audit(store, 0, 100'000).size(), taken.size());
  EXPECT_FALSE(service::first_altered(store));
  for (const auto& job : taken) {
    const auto history = store.history(job.id);
    EXPECT_EQ(history.front().state, service::JobState::queued);
    if (std::find(jobs.begin(), jobs.end(), job.id) == jobs.end()) continue;
    EXPECT_EQ(history.back().state, service::JobState::done);
  }
}

TEST_F(KillTest, AKilledSupervisorIsTriedAgainAndLosesNoStep) {
  constexpr int kStepsOfAJob = 200;
  constexpr int kKillsOfAJob = 5;
  const int kills = number_from("LOCKSTEP_SOAK_SUPERVISOR_KILLS", 5);
  served_.start();
  int killed = 0;
  while (killed < kills) {
    const auto id = served_.submit(kStepsOfAJob);
    for (int attempt = 1; attempt <= kKillsOfAJob; ++attempt) {
      // The kill before may have come when the end was written already.
      ASSERT_TRUE(test::eventually([&] {
        return service::look_at_attempt(served_.folder(id), attempt)
                   .supervisor.has_value() ||
               served_.state_of(id) == "done";
      }));
      if (served_.state_of(id) == "done") break;
      // At a random step of those that are left, or before the first.
      const auto at = steps_of(id) + static_cast<std::int64_t>(random_() % 40);
      service::AttemptView view;
      ASSERT_TRUE(test::eventually([&] {
        view = service::look_at_attempt(served_.folder(id), attempt);
        return steps_of(id) >= at || view.status == service::AttemptStatus::ended;
      }));
      if (view.status != service::AttemptStatus::alive) break;
      killed += service::signal_supervisor(*view.supervisor, SIGKILL) ? 1 : 0;
    }
    ASSERT_TRUE(served_.reaches(id, "done")) << served_.state_of(id);
    expect_whole(id, kStepsOfAJob);
  }
}

// A database as it is after years, most of it over, some of it waiting.
TEST_F(KillTest, AServerWithTenThousandJobsStartsAndGoesOnWithTheQueue) {
  constexpr int kJobs = 10'000;
  constexpr int kWaiting = 500;
  std::string last;
  {
    service::Store store(served_.state() / "lockstep.db");
    store.transaction([&] {
      add_user(store, "ada");
      for (int i = 0; i < kJobs; ++i) {
        last = store.add_job({.user = "ada",
                              .name = "job " + std::to_string(i),
                              .priority = i + 1 == kJobs ? 1 : 0,
                              .request = "{}",
                              .recipe = test::short_recipe(3)});
        if (i < kJobs - kWaiting) {
          store.move(last, {service::JobState::queued, service::JobState::planning});
          store.move(last, {service::JobState::planning, service::JobState::done});
        }
      }
    });
  }
  const auto begin = Clock::system().now();
  served_.start();
  RecordProperty(
      "milliseconds_until_ready",
      static_cast<int>(1000 * seconds_between(begin, Clock::system().now())));
  EXPECT_TRUE(served_.reaches(last, "done")) << served_.state_of(last);
  const auto page = Json::parse(served_.ask("GET", "/v1/jobs?limit=1000").body);
  EXPECT_EQ(page["items"].size(), 1000U);
}

}  // namespace
}  // namespace lockstep::server
