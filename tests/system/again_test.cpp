// The same command again: after a kill, with more ranks, together with itself.
#include <thread>

#include <signal.h>

#include "lockstep/storage/catalog.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

using monitor::RunState;
using testing::AllOf;
using testing::HasSubstr;

class Again : public testing::Test {
 protected:
  std::vector<std::string> command(int ranks,
                                   const std::vector<std::string>& more) const {
    return test::train_command(
        run_, ranks,
        test::joined({"model.name=mlp", "model.hidden=16", "checkpoint.every=2"},
                     more));
  }

  bool has_checkpoint() const {
    return !storage::list_steps(run_ / "checkpoints").empty();
  }

  // Trains without end until it has a checkpoint, and is killed.
  void leave_killed_run() const {
    test::Job job(command(1, {test::kEndless}));
    EXPECT_TRUE(test::eventually([&] { return has_checkpoint(); })) << job.text();
    ::kill(job.pid(), SIGKILL);
    EXPECT_TRUE(job.wait_for(test::kJobPatience).has_value());
    EXPECT_TRUE(job.is_gone());
  }

  files::TemporaryDirectory folder_;
  test::Path run_ = folder_.path() / "run";
};

TEST_F(Again, MoreRanksThanBeforeGoOnAndEndWell) {
  const auto first = test::run(command(1, {"train.steps=4"}));
  ASSERT_EQ(first.end.shell_status(), 0) << first.err;
  const auto second = test::run(command(3, {"train.steps=8", "watch.startup=30s"}));
  EXPECT_EQ(second.end.shell_status(), 0) << second.err;
  EXPECT_EQ(test::record_of(run_).state, RunState::done);
  EXPECT_THAT(second.out + second.err, HasSubstr("going on after step 4"));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(test::beat_of(run_, rank)->step, 8);
}

TEST_F(Again, AStartThatFailedDoesNotBlockItsDirectory) {
  const auto first =
      test::run(command(1, {"train.steps=2", "data.path=" + folder_.path().string()}));
  ASSERT_NE(first.end.shell_status(), 0);
  const auto second = test::run(command(1, {"train.steps=2"}));
  EXPECT_EQ(second.end.shell_status(), 0) << second.err;
  EXPECT_EQ(test::record_of(run_).state, RunState::done);
}

TEST_F(Again, OfSeveralCommandsOnOneStoppedRunOneTrains) {
  leave_killed_run();
  std::vector<std::unique_ptr<test::Job>> jobs;
  for (int i = 0; i < 3; ++i) {
    jobs.push_back(std::make_unique<test::Job>(command(1, {test::kEndless})));
  }
  int refused = 0;
  test::Job* winner = nullptr;
  EXPECT_TRUE(test::eventually([&] {
    refused = 0;
    for (auto& job : jobs) {
      if (job->wait_for(std::chrono::milliseconds(1))) {
        ++refused;
      } else {
        winner = job.get();
      }
    }
    return refused == 2;
  }));
  for (auto& job : jobs) {
    if (job.get() == winner) continue;
    EXPECT_EQ(job->wait_for(test::kPatience)->shell_status(), 2) << job->text();
    EXPECT_THAT(job->text(), HasSubstr("is still going on (process "));
  }
  ASSERT_NE(winner, nullptr);
  EXPECT_TRUE(test::trains(run_, 1));
  ::kill(winner->pid(), SIGTERM);
  EXPECT_EQ(winner->wait_for(test::kJobPatience)->shell_status(), 75) << winner->text();
}

// A run whose launcher is dead but not gone from the record: another host's name in it.
TEST_F(Again, ARunOfAHostThatIsGoneIsTakenUp) {
  leave_killed_run();
  auto record = test::record_of(run_);
  record.host = "nodeA";
  record.pid = 4711;
  files::write_atomically(run_ / "run.json", monitor::to_json(record));
  std::filesystem::remove(run_ / "lock");
  const auto newest = storage::list_steps(run_ / "checkpoints").back().step;
  const auto again = test::run(command(1, {str("train.steps=", newest + 4)}));
  EXPECT_EQ(again.end.shell_status(), 0) << again.err;
}

TEST_F(Again, AStopBeforeTheFirstStepOfAResumedRunIsResumableToo) {
  leave_killed_run();
  for (const int signal : {SIGTERM, SIGUSR1}) {
    test::Job job(command(1, {test::kEndless}));
    // As early as the run is this one's: its worker may not even have begun.
    EXPECT_TRUE(test::eventually([&] {
      const auto record = test::record_of(run_);
      return record.pid == job.pid() && record.state == RunState::running;
    })) << job.text();
    ::kill(job.pid(), signal);
    const auto end = job.wait_for(test::kJobPatience);
    ASSERT_TRUE(end.has_value()) << job.text();
    EXPECT_EQ(end->shell_status(), 75) << job.text();
    EXPECT_TRUE(job.is_gone());
  }
}

TEST_F(Again, APreparedRunIsTrainedByOneJobAtATime) {
  test::prepare_run(run_, 1, {test::kEndless, "checkpoint.every=2"});
  const std::vector<std::string> worker{test::worker(), "--run-dir", run_.string()};
  test::Job first(worker);
  ASSERT_TRUE(test::trains(run_, 1)) << first.text();
  test::Job second(worker);
  const auto end = second.wait_for(test::kJobPatience);
  ASSERT_TRUE(end.has_value()) << second.text();
  EXPECT_EQ(end->shell_status(), exit_status(Fault::config)) << second.text();
  EXPECT_THAT(second.text(), HasSubstr("is still going on (process "));
  ::kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.wait_for(test::kJobPatience)->shell_status(), 75) << first.text();
}

}  // namespace
}  // namespace lockstep
