// The same command again: after a kill, with more ranks, together with itself.
#include <thread>

#include <signal.h>

#include "lockstep/storage/catalog.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

using run::RunStatus;
using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

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
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
  EXPECT_THAT(second.out + second.err, HasSubstr("resuming from step 4"));
  for (int rank = 0; rank < 3; ++rank) EXPECT_EQ(test::beat_of(run_, rank)->step, 8);
}

TEST_F(Again, AStartThatFailedDoesNotBlockItsDirectory) {
  const auto first =
      test::run(command(1, {"train.steps=2", "data.path=" + folder_.path().string()}));
  ASSERT_NE(first.end.shell_status(), 0);
  const auto second = test::run(command(1, {"train.steps=2"}));
  EXPECT_EQ(second.end.shell_status(), 0) << second.err;
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
}

TEST_F(Again, NeverBeginsAtTheBeginningAndKeepsWhatThereWas) {
  leave_killed_run();
  const auto before = storage::list_steps(run_ / "checkpoints").back().step;
  const auto old =
      test::read_file(run_ / "checkpoints" / str("step_", before) / "manifest.json");
  const auto anew = test::run(command(1, {"train.steps=2", "--resume", "never"}));
  EXPECT_EQ(anew.end.shell_status(), 0) << anew.err;
  EXPECT_THAT(anew.err,
              AllOf(HasSubstr("it starts over"), HasSubstr("its checkpoints are in "),
                    Not(HasSubstr("resuming from step"))));
  EXPECT_EQ(test::beat_of(run_, 0)->step, 2);
  const auto steps = storage::list_steps(run_ / "checkpoints");
  ASSERT_EQ(steps.size(), 1u);
  EXPECT_EQ(steps[0].step, 2);
  EXPECT_EQ(test::read_file(run_ / "checkpoints/set_aside_1" / str("step_", before) /
                            "manifest.json"),
            old);
  EXPECT_EQ(test::losses_in(run_).size(), 2u + 1u);  // and one evaluation
}

TEST_F(Again, AStopOfARunThatIsNotToResumeIsNotResumable) {
  test::Job job(command(1, {test::kEndless, "--resume", "never"}));
  EXPECT_TRUE(test::eventually([&] { return has_checkpoint(); })) << job.text();
  ::kill(job.pid(), SIGTERM);
  EXPECT_EQ(job.wait_for(test::kJobPatience)->shell_status(), 143) << job.text();
  EXPECT_THAT(job.text(), HasSubstr(" --resume auto\n"));
}

TEST_F(Again, ARunWhoseDirectoryIsRemovedEndsWithOneLine) {
  test::Job job(command(1, {test::kEndless, "checkpoint.every=0"}));
  ASSERT_TRUE(test::trains(run_, 1)) << job.text();
  std::filesystem::rename(run_, folder_.path() / "moved");
  const auto end = job.wait_for(test::kJobPatience);
  ASSERT_TRUE(end.has_value()) << job.text();
  EXPECT_EQ(end->shell_status(), 3) << job.text();
  EXPECT_EQ(test::count_of(job.text(), "is gone"), 1) << job.text();
  EXPECT_TRUE(job.is_gone());
  EXPECT_FALSE(std::filesystem::exists(run_));
}

// As on a disk that is full to the last block.
TEST_F(Again, AnErrorThatCanNotBeLeftInItsFileIsStillTold) {
  std::filesystem::create_directories(run_);
  const auto first = test::run(command(1, {"train.steps=2", "data.dir=/nowhere"}));
  ASSERT_NE(first.end.shell_status(), 0);
  std::filesystem::remove(run_ / "error_rank_0.json");
  test::write_file(run_ / "error_rank_0.json" / "x", "");
  const auto second = test::run(command(1, {"train.steps=2", "data.dir=/nowhere"}));
  EXPECT_EQ(second.end.shell_status(), first.end.shell_status()) << second.err;
  EXPECT_THAT(test::record_of(run_).message,
              AllOf(testing::StartsWith("rank 0 ended with exit status "),
                    HasSubstr("/nowhere")));
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
    EXPECT_THAT(job->text(), HasSubstr("is still running (process "));
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
  files::write_atomically(run_ / "run.json", run::to_json(record));
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
      return record.pid == job.pid() && record.state == RunStatus::running;
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
  EXPECT_THAT(second.text(), HasSubstr("is still running (process "));
  ::kill(first.pid(), SIGTERM);
  EXPECT_EQ(first.wait_for(test::kJobPatience)->shell_status(), 75) << first.text();
}

// What a process of another machine leaves when that goes down.
void leave_lock_of_another_machine(const test::Path& run) {
  test::write_file(run / "lock", R"({"host":"nodeA","boot":"another-kernel",)"
                                 R"("pid":4711,"process_start":1,"renewed":3})");
}

TEST_F(Again, AWorkerThatWaitsForALeaseEndsWhenAskedAndLeavesNothing) {
  test::prepare_run(run_, 1, {test::kEndless});
  for (const int signal : {SIGTERM, SIGINT}) {
    leave_lock_of_another_machine(run_);
    test::Job job({test::worker(), "--run-dir", run_.string()});
    ASSERT_TRUE(test::eventually([&] {
      return job.text().find("waiting up to") != std::string::npos;
    })) << job.text();
    ::kill(job.pid(), signal);
    const auto end = job.wait_for(test::kPatience);
    ASSERT_TRUE(end.has_value()) << job.text();
    EXPECT_EQ(end->exit_status, 128 + signal) << job.text();
    EXPECT_EQ(test::record_of(run_).state, RunStatus::planned);
    EXPECT_EQ(test::names_in(run_ / "logs"), std::vector<std::string>());
    EXPECT_FALSE(test::beat_of(run_, 0));
  }
}

// The ranks of a job, started by hand, or by a launcher that is none of ours.
class HandStarted {
 public:
  HandStarted(const test::Path& run, int ranks) {
    const auto port = std::to_string(test::free_port());
    for (int rank = 0; rank < ranks; ++rank) {
      jobs_.push_back(std::make_unique<test::Job>(
          std::vector<std::string>{test::worker(), "--run-dir", run.string()},
          std::vector<std::pair<std::string, std::string>>{
              {"RANK", std::to_string(rank)},
              {"WORLD_SIZE", std::to_string(ranks)},
              {"MASTER_ADDR", "127.0.0.1"},
              {"MASTER_PORT", port}}));
    }
  }
  test::Job& rank(int rank) { return *jobs_[static_cast<std::size_t>(rank)]; }

 private:
  std::vector<std::unique_ptr<test::Job>> jobs_;
};

TEST_F(Again, RanksOfAJobThatIsRefusedLeaveNothingInTheRunOfAnother) {
  test::prepare_run(run_, 2, {test::kEndless, "checkpoint.interval=0s"});
  HandStarted first(run_, 2);
  ASSERT_TRUE(test::trains(run_, 2)) << first.rank(0).text();
  HandStarted second(run_, 2);
  const auto refused = second.rank(0).wait_for(test::kJobPatience);
  ASSERT_TRUE(refused.has_value()) << second.rank(0).text();
  EXPECT_EQ(refused->shell_status(), exit_status(Fault::config));
  // It is there, and waits for a rank 0 that does not come.
  EXPECT_FALSE(second.rank(1).wait_for(std::chrono::seconds(3)));
  EXPECT_EQ(test::beat_of(run_, 1)->pid, first.rank(1).pid());
  ::kill(second.rank(1).pid(), SIGTERM);
  const auto end = second.rank(1).wait_for(test::kPatience);
  ASSERT_TRUE(end.has_value()) << second.rank(1).text();
  EXPECT_EQ(end->exit_status, 128 + SIGTERM) << second.rank(1).text();
  for (const auto& name : {"error_rank_0.json", "error_rank_1.json"}) {
    EXPECT_FALSE(std::filesystem::exists(run_ / name)) << name;
  }
  for (const auto* log : {"rank_0.log", "rank_1.log"}) {
    EXPECT_THAT(test::read_file(run_ / "logs" / log),
                testing::Not(HasSubstr("stopped by")))
        << log;
  }
  EXPECT_EQ(test::record_of(run_).state, RunStatus::running);
  ::kill(first.rank(0).pid(), SIGTERM);
  for (const int rank : {0, 1}) {
    EXPECT_TRUE(first.rank(rank).wait_for(test::kJobPatience).has_value());
  }
  EXPECT_THAT(test::read_file(run_ / "logs" / "rank_1.log"), HasSubstr("stopped by"))
      << "a rank that belongs to the run keeps its log";
}

TEST_F(Again, AForeignLaunchersWorkerChecksTheLimitOfOpenFiles) {
  test::prepare_run(run_, 2, {test::kEndless});
  test::Job job({"/bin/sh", "-c", "ulimit -n 60; exec \"$@\"", "sh", test::worker(),
                 "--run-dir", run_.string()},
                {{"RANK", "0"},
                 {"WORLD_SIZE", "2"},
                 {"LOCAL_WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "127.0.0.1"},
                 {"MASTER_PORT", std::to_string(test::free_port())}});
  const auto end = job.wait_for(test::kPatience);
  ASSERT_TRUE(end.has_value()) << job.text();
  EXPECT_EQ(end->shell_status(), exit_status(Fault::hardware)) << job.text();
  EXPECT_THAT(job.text(), HasSubstr("a process may open 60 files here, and one of 2 "
                                    "ranks needs about"));
}

}  // namespace
}  // namespace lockstep
