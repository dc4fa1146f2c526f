// `lockstep train` over several ranks: what it leaves, and what it makes of deaths,
// signals and peers that do not come.
#include <set>

#include <signal.h>

#include "lockstep/monitor/metrics.h"
#include "lockstep/run/events.h"
#include "tests/support/oracle.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

using run::RunStatus;
using testing::ElementsAre;
using testing::HasSubstr;

class TrainRanks : public testing::Test {
 protected:
  static constexpr int kRanks = 3;

  std::unique_ptr<test::Job> start(const std::vector<std::string>& more) const {
    return std::make_unique<test::Job>(test::train_command(run_, kRanks, more));
  }

  // Seen in the middle of its training.
  std::unique_ptr<test::Job> start_and_see(const std::vector<std::string>& more) const {
    auto job = start(more);
    EXPECT_TRUE(test::trains(run_, kRanks)) << job->text();
    return job;
  }

  // In the middle of an exchange or between two, as it happens.
  pid_t signal_rank(int rank, int number) const {
    const auto pid = test::beat_of(run_, rank)->pid;
    EXPECT_EQ(::kill(pid, number), 0);
    return pid;
  }

  // Whatever happened: nothing is left of it.
  static void expect_end(test::Job& job, int status) {
    const auto end = job.wait_for(test::kJobPatience);
    ASSERT_TRUE(end.has_value()) << job.text();
    EXPECT_EQ(end->shell_status(), status) << job.text();
    EXPECT_TRUE(job.is_gone()) << job.text();
  }

  std::string log(int rank) const {
    return test::read_file(run_ / "logs" / str("rank_", rank, ".log"));
  }

  std::vector<run::Event> events() const {
    return run::last_events(run_ / "events.jsonl", 100);
  }

  // Of the run's course; who was slow, and how much memory is used, is left out.
  std::vector<std::string> kinds_of_events() const {
    std::vector<std::string> kinds;
    for (const auto& event : events()) {
      if (event.kind != "straggler" && event.kind != "memory" && event.kind != "slow")
        kinds.push_back(event.kind);
    }
    return kinds;
  }

  // A field of the first event of this kind, as text.
  std::string field(const std::string& kind, const std::string& name) const {
    for (const auto& event : events()) {
      if (event.kind != kind) continue;
      for (const auto& one : event.fields) {
        if (one.name == name) {
          return std::visit([](const auto& value) { return str(value); }, one.value);
        }
      }
    }
    return "no such field";
  }

  files::TemporaryDirectory folder_;
  test::Path run_ = folder_.path() / "run";
};

TEST_F(TrainRanks, LearnWhatOneRankLearns) {
  std::vector<std::vector<double>> losses;
  for (const int ranks : {1, kRanks}) {
    const auto run = folder_.path() / str("of_", ranks);
    const auto output = test::run(test::train_command(run, ranks, {"train.steps=12"}));
    ASSERT_EQ(output.end.shell_status(), 0) << output.err;
    EXPECT_THAT(output.out, HasSubstr("12 (500 samples)"));
    losses.push_back(test::losses_in(run));
  }
  ASSERT_EQ(losses[0].size(), 13U);  // and the evaluation
  ASSERT_EQ(losses[1].size(), 13U);
  for (std::size_t i = 0; i < losses[0].size(); ++i) {
    EXPECT_NEAR(losses[1][i], losses[0][i], 1e-4 * losses[0][i]) << i;
  }
}

TEST_F(TrainRanks, LeaveACompleteRunDirectory) {
  const auto job = start({"train.steps=6"});
  expect_end(*job, 0);
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
  EXPECT_THAT(kinds_of_events(),
              ElementsAre("launched", "started", "checkpoint", "done"));
  for (int rank = 0; rank < kRanks; ++rank) {
    const auto beat = test::beat_of(run_, rank);
    ASSERT_TRUE(beat.has_value());
    EXPECT_EQ(beat->phase, run::Phase::finished);
    EXPECT_EQ(beat->step, 6);
    const auto lines = text::split(text::trim(log(rank)), '\n');
    EXPECT_GT(lines.size(), 2U);
    // Both the rank and the launcher could write it.
    EXPECT_EQ(std::set(lines.begin(), lines.end()).size(), lines.size()) << log(rank);
  }
  const auto status = test::lockstep_command({"status", run_.string()});
  EXPECT_EQ(status.end.shell_status(), 0) << status.err;
  EXPECT_THAT(status.out, HasSubstr("6/6 (100 %)"));
}

TEST_F(TrainRanks, AKilledRankEndsTheRunAndIsNamed) {
  const auto job = start_and_see({test::kEndless});
  const auto pid = signal_rank(1, SIGKILL);
  expect_end(*job, 128 + SIGKILL);
  EXPECT_THAT(job->text(), HasSubstr(str("error: rank 1 (pid ", pid, " on ")));
  EXPECT_THAT(job->text(), HasSubstr("ended by signal 9 (SIGKILL)"));
  EXPECT_THAT(job->text(), HasSubstr("\nrank 0 (pid "));
  EXPECT_THAT(job->text(), HasSubstr("\nrank 2 (pid "));
  const auto record = test::record_of(run_);
  EXPECT_EQ(record.state, RunStatus::failed);
  EXPECT_EQ(record.exit, 128 + SIGKILL);
  EXPECT_THAT(record.message, testing::StartsWith("rank 1 (pid "));
  EXPECT_THAT(kinds_of_events(), ElementsAre("launched", "started", "failure"));
  EXPECT_EQ(field("failure", "rank"), "1");
}

TEST_F(TrainRanks, AKilledRankIsFollowedByARestartOfAll) {
  const auto job = start_and_see({"--max-restarts", "1", "train.steps=80"});
  const auto pid = signal_rank(1, SIGKILL);
  expect_end(*job, 0);
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
  EXPECT_THAT(kinds_of_events(),
              ElementsAre("launched", "started", "failure", "restart", "launched",
                          "started", "checkpoint", "done"));
  EXPECT_THAT(field("restart", "reason"),
              testing::AllOf(HasSubstr(str("rank 1 (pid ", pid)),
                             HasSubstr("signal 9 (SIGKILL)")));
  for (int rank = 0; rank < kRanks; ++rank) {
    EXPECT_EQ(test::beat_of(run_, rank)->step, 80);
  }
}

TEST_F(TrainRanks, AStoppedRankIsFoundAndNamed) {
  const auto job = start_and_see({test::kEndless, "watch.step_floor=2s"});
  const auto pid = signal_rank(2, SIGSTOP);
  expect_end(*job, kExitFailed);
  EXPECT_THAT(job->text(), HasSubstr(str("error: rank 2 (pid ", pid, " on ")));
  EXPECT_THAT(job->text(), HasSubstr("hangs: is stopped (SIGSTOP): no heartbeat for"));
  EXPECT_EQ(test::record_of(run_).state, RunStatus::failed);
  EXPECT_THAT(field("failure", "hang"), HasSubstr("is stopped"));
}

// A step in mid-run that takes a thousand times as long as the others, and computes all
// the while: that is told, and nothing is killed.
TEST_F(TrainRanks, AStepThatIsSlowAndComputesIsToldAndLeftAlone) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto file = (folder_.path() / "slow.pt").string();
  test::expect_oracle_agrees("torchscript.py", {"slow", file});
  test::Job job(test::train_command(
      run_, 1,
      {"model.name=torchscript", "model.file=" + file, "train.steps=16",
       "train.epochs=0", "watch.step_floor=300ms"}));
  expect_end(job, 0);
  EXPECT_THAT(job.text(), HasSubstr("rank 0 is slow: no heartbeat for "));
  EXPECT_THAT(job.text(), HasSubstr(" at step 11 (training); "));
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
}

TEST_F(TrainRanks, ASignalStopsAllAfterTheSameStepAndKeepsTheWeights) {
  for (const int number : {SIGTERM, SIGINT}) {
    run_ = folder_.path() / str("signal", number);
    const auto job = start_and_see({test::kEndless});
    ::kill(job->pid(), number);
    expect_end(*job, number == SIGTERM ? kExitStopped : 128 + number);
    EXPECT_EQ(test::record_of(run_).state, RunStatus::stopped);
    int written = 0;
    for (int rank = 0; rank < kRanks; ++rank) {
      const auto beat = test::beat_of(run_, rank);
      EXPECT_EQ(beat->phase, run::Phase::finished);
      EXPECT_EQ(beat->step, test::beat_of(run_, 0)->step) << rank;
      written += test::count_of(log(rank), "weights written to");
    }
    EXPECT_EQ(written, 1);
    EXPECT_TRUE(std::filesystem::exists(run_ / "model.safetensors"));
    EXPECT_THAT(kinds_of_events(), ElementsAre("launched", "started", "stopping",
                                               "checkpoint", "stopped"));
  }
}

TEST_F(TrainRanks, ARerunInTheSameDirectoryGoesOnWhereItWasStopped) {
  const auto job = start_and_see({test::kEndless});
  ::kill(job->pid(), SIGTERM);
  expect_end(*job, kExitStopped);
  const auto stopped_at = test::beat_of(run_, 0)->step;
  EXPECT_THAT(job->text(), HasSubstr("resumable"));
  // With other ranks, too.
  test::Job again(
      test::train_command(run_, 2, {"train.steps=" + std::to_string(stopped_at + 5)}));
  expect_end(again, 0);
  EXPECT_EQ(test::beat_of(run_, 0)->step, stopped_at + 5);
  EXPECT_EQ(field("resumed", "step"), std::to_string(stopped_at));
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
}

TEST_F(TrainRanks, ARestartGoesOnFromTheNewestCheckpoint) {
  const auto job = start_and_see({"--max-restarts", "1", "train.steps=400",
                                  "checkpoint.every=20", "checkpoint.keep=1"});
  const auto saved = [&] {
    const auto last = run_ / "checkpoints" / "last";
    return std::filesystem::exists(last);
  };
  ASSERT_TRUE(test::eventually(saved));
  signal_rank(1, SIGKILL);
  expect_end(*job, 0);
  EXPECT_GE(std::stoi(field("resumed", "step")), 20);
  EXPECT_EQ(test::beat_of(run_, 0)->step, 400);
}

TEST_F(TrainRanks, Usr2AsksForACheckpointOnly) {
  const auto job = start_and_see({test::kEndless});
  ::kill(job->pid(), SIGUSR2);
  EXPECT_TRUE(test::eventually(
      [&] { return std::filesystem::exists(run_ / "checkpoints" / "last"); }));
  ::kill(job->pid(), SIGINT);
  expect_end(*job, 128 + SIGINT);
}

// Only who has counted the samples can know of it.
TEST_F(TrainRanks, AFaultOfTheConfigIsNotRetriedAndSaidOnce) {
  const auto job = start({"--max-restarts", "3", "train.steps=auto", "train.epochs=1",
                          "schedule.warmup_steps=1000"});
  expect_end(*job, 2);
  EXPECT_EQ(test::count_of(job->text(), "schedule.warmup_steps: 1000 steps of warm-up"),
            1)
      << job->text();
  EXPECT_THAT(kinds_of_events(), ElementsAre("launched", "failure"));
}

// Not on one machine by accident: no rank can use an interface that is not there.
TEST_F(TrainRanks, RanksThatDoNotReachEachOtherLeaveTheWorkToOne) {
  const auto job = start({"comm.backend=gloo", "comm.interface=none0",
                          "parallel.on_setup_failure=single", "train.steps=4"});
  expect_end(*job, 0);
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
  EXPECT_THAT(log(0), testing::ContainsRegex("none0.*; rank 0 continues alone"));
  // The others may have failed at the same, or have seen that rank 0's store is gone.
  for (const int rank : {1, 2}) EXPECT_THAT(log(rank), HasSubstr("; left to rank 0"));
  EXPECT_EQ(test::losses_in(run_).size(), 5U);
}

TEST_F(TrainRanks, RanksThatDoNotReachEachOtherStopUnlessToldOtherwise) {
  const auto job =
      start({"comm.backend=gloo", "comm.interface=none0", "train.steps=4"});
  expect_end(*job, kExitFailed);
  EXPECT_THAT(job->text(), HasSubstr("(comm): comm: rank "));
  EXPECT_THAT(job->text(), HasSubstr("none0"));
}

}  // namespace
}  // namespace lockstep
