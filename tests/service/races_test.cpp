// What somebody asks for while something else happens to the same job.
#include <csignal>
#include <map>
#include <mutex>

#include "tests/service/rig.h"

namespace lockstep::service {
namespace {

using ::testing::HasSubstr;

class RacesTest : public test::ServiceRig {
 protected:
  RacesTest() { serve(); }

  void serve() {
    config::ServerConfig config;
    config.queue.cores = 2;
    config.queue.retry_delay = units::Duration(10);
    ServiceRig::serve(std::move(config));
  }
};

// Who pauses a job does not want it to run, also if it fails at that moment.
TEST_F(RacesTest, AJobThatFailsWhileItIsPausedIsNotTriedAgain) {
  const auto id = submit_held(20, {.max_retries = 5});
  ASSERT_TRUE(reaches(id, JobState::running));
  const auto place = folder(id);
  service_.reset();
  const auto view = look_at_attempt(place, 1);
  ASSERT_TRUE(view.supervisor);
  signal_supervisor(*view.supervisor, SIGKILL);
  ASSERT_TRUE(test::eventually(
      [&] { return look_at_attempt(place, 1).status == AttemptStatus::killed; }));
  write_end(place, 1, {.message = "no space left on device", .may_retry = true});
  Store(state_.path() / "lockstep.db").move(id, {JobState::running, JobState::pausing});
  serve();
  ASSERT_TRUE(reaches(id, JobState::paused));
  EXPECT_THAT(job(id).reason, HasSubstr("no space left"));
  EXPECT_EQ(job(id).attempt, 1);
  test::let_go(place);
  service_->resume(ada_, id, {});
  EXPECT_TRUE(reaches(id, JobState::done)) << job(id).reason;
}

TEST(RetryDelay, DoublesUpToABound) {
  config::QueueConfig queue;
  queue.retry_delay = units::Duration(100);
  std::vector<Milliseconds> delays;
  for (const int retries : {0, 1, 2, 5, 6, 100}) {
    delays.push_back(retry_delay(queue, retries));
  }
  EXPECT_THAT(delays, ::testing::ElementsAre(100, 200, 400, 3200, 3200, 3200));
}

// What is asked for happens, or is refused.
TEST_F(RacesTest, AQueuedJobDoesNotChangeItsResources) {
  submit_held(20, {.resources = {.cores = 2}});
  const auto id = submit(5);
  EXPECT_EQ(service_->resume(ada_, id, {}).state, JobState::queued);
  EXPECT_EQ(service_->resume(ada_, id, Resources{.cores = 1}).state, JobState::queued);
  const auto text = test::error_text(
      Fault::config, [&] { service_->resume(ada_, id, Resources{.cores = 2}); });
  EXPECT_THAT(text, HasSubstr("pause it"));
  EXPECT_EQ(job(id).resources.cores, 1);
}

// The clock of a store, by which something happens between two of its statements.
class InterruptingClock : public Clock {
 public:
  SteadyTime now() const override { return Clock::system().now(); }
  WallTime wall() const override {
    if (auto happens = std::exchange(happens_, {})) happens();
    return Clock::system().wall();
  }

  void at_the_next_look(std::function<void()> happens) {
    happens_ = std::move(happens);
  }

 private:
  mutable std::function<void()> happens_;
};

// Remembers what was started, and starts nothing.
class RecordingExecutor : public Executor {
 public:
  void start(const Start& start, const Pool&) override { starts.push_back(start); }
  AttemptView look(const JobFolder&, int) override { return {}; }
  void stop(const JobFolder&, int, bool) override {}
  bool uses_pool() const override { return true; }

  std::vector<Start> starts;
};

class TurnTest : public ::testing::Test {
 protected:
  TurnTest() {
    std::filesystem::create_directories(folder_.path() / "jobs");
    add_user(store_, "ada");
  }

  files::TemporaryDirectory folder_;
  InterruptingClock clock_;
  Store store_{folder_.path() / "a.db", clock_};
  RecordingExecutor executor_;
  Dispatcher dispatcher_{store_,
                         executor_,
                         {.jobs = folder_.path() / "jobs",
                          .removed = folder_.path() / "removed",
                          .machine = [] { return test::machine_with(0); },
                          .cores = {0, 1}}};
};

// Between the turn of a job and its start, its user pauses it and resumes it on more.
TEST_F(TurnTest, AJobThatWasChangedSinceItsTurnIsNotStartedOnWhatItHadThen) {
  const auto id = store_.add_job({.user = "ada", .recipe = "{}"});
  clock_.at_the_next_look([&] {
    store_.move(id, {JobState::queued, JobState::paused});
    store_.move(id, {JobState::paused, JobState::queued});
    store_.set_resources(id, {.cores = 2});
  });
  dispatcher_.look_once();
  EXPECT_TRUE(executor_.starts.empty());
  dispatcher_.look_once();
  ASSERT_EQ(executor_.starts.size(), 1U);
  EXPECT_EQ(executor_.starts[0].leases.size(), 2U);
  EXPECT_EQ(store_.leases().size(), 2U);
}

// The recipe, which the list of those who wait does not have.
TEST_F(TurnTest, AJobIsStartedWithAllOfIt) {
  store_.add_job({.user = "ada", .recipe = "train: {steps: 1}"});
  dispatcher_.look_once();
  ASSERT_EQ(executor_.starts.size(), 1U);
  EXPECT_EQ(executor_.starts[0].order.recipe, "train: {steps: 1}");
}

}  // namespace
}  // namespace lockstep::service
