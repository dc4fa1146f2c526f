#include "lockstep/launcher/hang.h"

#include "tests/launcher/job_rig.h"

namespace lockstep {
namespace {

using launcher::Hang;
using launcher::HangJudge;
using launcher::HangLimits;
using launcher::RankLook;
using monitor::Phase;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

// Ranks whose heartbeats are written by hand, looked at every 100 ms.
class Beats : public ::testing::Test {
 protected:
  void watch(int ranks, bool several_nodes = false) {
    looks_.assign(static_cast<std::size_t>(ranks), {});
    judge_.emplace(limits_, ranks, several_nodes, clock_);
  }

  void beat(int rank, std::int64_t step, Phase phase = Phase::training) {
    looks_[static_cast<std::size_t>(rank)].beat =
        monitor::Beat{.step = step,
                      .phase = phase,
                      .time = unix_seconds(clock_.wall()),
                      .pid = 100 + rank};
  }
  void beat_all(std::int64_t step, Phase phase = Phase::training) {
    for (std::size_t i = 0; i < looks_.size(); ++i) {
      beat(static_cast<int>(i), step, phase);
    }
  }

  std::optional<Hang> look() { return judge_->look(looks_); }

  // How long it takes until a hang is seen, if within `limit`.
  std::optional<milliseconds> quiet_until_hang(milliseconds limit) {
    for (milliseconds passed{0}; passed <= limit; passed += milliseconds(100)) {
      hang_ = look();
      if (hang_) return passed;
      clock_.advance(milliseconds(100));
    }
    return std::nullopt;
  }

  // Steps of all ranks; no look may see a hang.
  void train(int steps, milliseconds each) {
    for (int i = 0; i < steps; ++i) {
      beat_all(++step_);
      EXPECT_EQ(quiet_until_hang(each - milliseconds(100)), std::nullopt);
    }
    beat_all(step_);
  }

  HangLimits limits_;
  ManualClock clock_;
  std::optional<HangJudge> judge_;
  std::vector<RankLook> looks_;
  std::optional<Hang> hang_;
  std::int64_t step_ = 0;
};

TEST_F(Beats, ShortStepsMayTakeTheFloor) {
  watch(2);
  train(10, milliseconds(200));
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(3'000));
}

TEST_F(Beats, LongStepsMayTakeFiveOfThem) {
  watch(2);
  train(10, milliseconds(2'000));
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(10'000));
}

TEST_F(Beats, TheUsualStepIsTheMedianOfTheLast) {
  watch(1);
  train(3, milliseconds(9'000));
  train(3, milliseconds(2'000));
  train(32, milliseconds(1'000));
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(5'000));
}

TEST_F(Beats, StepsFasterThanTheLooksAreCountedToo) {
  limits_.step_floor = milliseconds(100);
  limits_.step_factor = 50;
  watch(1);
  for (int i = 0; i < 20; ++i) {
    beat(0, step_ += 10);  // 10 ms each
    look();
    clock_.advance(milliseconds(100));
  }
  beat(0, step_ += 10);
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(500));
}

TEST_F(Beats, ARankThatIsThreeTimesSlowerIsNoHang) {
  watch(2);
  train(10, milliseconds(4'000));
  for (int i = 0; i < 40; ++i) {
    beat(1, ++step_);
    for (int third = 0; third < 3; ++third) {
      beat(0, step_, third == 0 ? Phase::training : Phase::exchanging);
      EXPECT_EQ(quiet_until_hang(milliseconds(3'900)), std::nullopt) << i;
    }
  }
}

TEST_F(Beats, PhasesHaveLimitsOfTheirOwn) {
  const std::vector<std::pair<Phase, milliseconds>> wanted{
      {Phase::starting, limits_.startup},
      {Phase::evaluating, limits_.evaluation},
      {Phase::saving, limits_.saving},
      {Phase::stopping, limits_.saving},
      {Phase::loading, limits_.loading}};
  for (const auto& [phase, limit] : wanted) {
    watch(2);
    train(3, milliseconds(200));
    beat_all(step_, phase);
    EXPECT_EQ(quiet_until_hang(2 * limit), limit) << name_of(phase);
  }
}

TEST_F(Beats, TheStartAndTheFirstStepMayTakeLong) {
  limits_.startup = milliseconds(7'000);
  limits_.first_step = milliseconds(8'000);
  watch(1);
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(7'000));
  EXPECT_EQ(hang_->because, "no heartbeat for 7.0 s before its first heartbeat");
  watch(1);
  beat(0, 100);  // a run that was taken up again
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(8'000));
}

TEST_F(Beats, AnEvaluationDoesNotMakeTheUsualStepLonger) {
  watch(1);
  train(3, milliseconds(200));
  for (int i = 0; i < 10; ++i) {
    beat(0, step_, Phase::evaluating);
    EXPECT_EQ(quiet_until_hang(milliseconds(30'000)), std::nullopt);
    train(1, milliseconds(200));
  }
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(3'000));
}

TEST_F(Beats, ALimitOfZeroIsNone) {
  limits_.startup = milliseconds(0);
  watch(1);
  EXPECT_EQ(quiet_until_hang(milliseconds(3'600'000)), std::nullopt);
}

TEST_F(Beats, WhoWaitsForTheOthersIsNotToBlame) {
  watch(3);
  train(5, milliseconds(200));
  beat(0, step_, Phase::exchanging);
  beat(1, step_, Phase::training);
  beat(2, step_, Phase::exchanging);
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(3'000));
  EXPECT_EQ(hang_->local_rank, 1);
  EXPECT_THAT(hang_->because, StartsWith("no heartbeat for 3.0 s at step 5 (training); "
                                         "its usual step takes 0.2 s"));
}

TEST_F(Beats, RanksMayWaitForOneThatSaves) {
  watch(2);
  train(5, milliseconds(200));
  beat(0, step_, Phase::saving);
  beat(1, step_, Phase::exchanging);
  EXPECT_EQ(quiet_until_hang(limits_.saving * 2), limits_.saving);
  EXPECT_EQ(hang_->local_rank, 0);
}

TEST_F(Beats, WhenAllWaitTheOneThatIsBehindIsToBlame) {
  watch(3);
  train(5, milliseconds(200));
  beat(0, 7, Phase::exchanging);
  beat(1, 7, Phase::exchanging);
  beat(2, 6, Phase::exchanging);
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(3'000));
  EXPECT_EQ(hang_->local_rank, 2);
  EXPECT_THAT(hang_->because, HasSubstr("as all ranks wait for each other"));
}

TEST_F(Beats, WithOtherNodesAllMayWaitAsLongAsASaveTakes) {
  watch(2, true);
  train(5, milliseconds(200));
  beat_all(step_, Phase::exchanging);
  EXPECT_EQ(quiet_until_hang(limits_.saving * 2), limits_.saving);
}

TEST_F(Beats, AStoppedProcessIsToBlameWhateverItsPhase) {
  for (const auto phase : {Phase::training, Phase::exchanging, Phase::saving}) {
    watch(3);
    train(5, milliseconds(200));
    beat(1, step_, phase);
    looks_[1].state = 'T';
    EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(3'000));
    EXPECT_EQ(hang_->local_rank, 1);
    EXPECT_THAT(hang_->because, StartsWith("is stopped (SIGSTOP): no heartbeat for"));
  }
}

TEST_F(Beats, ADebuggerHasAllTheTime) {
  watch(2);
  train(5, milliseconds(200));
  looks_[1].state = 't';
  beat(0, step_, Phase::exchanging);
  EXPECT_EQ(quiet_until_hang(milliseconds(3'600'000)), std::nullopt);
}

TEST_F(Beats, ARankThatHasEndedIsNotMissed) {
  watch(2);
  train(5, milliseconds(200));
  looks_[1].running = false;
  for (int i = 0; i < 200; ++i) {
    beat(0, ++step_);
    EXPECT_EQ(look(), std::nullopt);
    clock_.advance(milliseconds(200));
  }
}

// A laptop that was closed, or Ctrl-Z and fg.
TEST_F(Beats, TimeInWhichNobodyLooksCountsOneSecond) {
  watch(1);
  train(5, milliseconds(200));
  look();
  for (int i = 0; i < 2; ++i) {
    clock_.advance(std::chrono::hours(1));
    EXPECT_EQ(look(), std::nullopt) << i;
  }
  clock_.advance(std::chrono::hours(1));
  EXPECT_NE(look(), std::nullopt);
}

// Real processes. The floor is shorter than a person would have it.
class HangingRanks : public test::JobRig {
 protected:
  launcher::Job watched(int ranks, std::vector<std::string> words) {
    auto job = worker_job(ranks, std::move(words));
    job.hang_limits->step_floor = job.hang_limits->first_step = milliseconds(1'000);
    return job;
  }
};

TEST_F(HangingRanks, AHangOutsideOfACollectiveIsFoundAndNamed) {
  const auto result = run(watched(3, {"steps=5:5", "r1.child", "r1.hang",
                                      "beat=5:exchanging", "answer=15", "hang"}));
  EXPECT_EQ(result.state, monitor::RunState::failed);
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.message, AllOf(StartsWith("rank 1 (pid "),
                                    HasSubstr(") hangs: no heartbeat for 1."),
                                    HasSubstr(" s at step 5 (training)"),
                                    HasSubstr("told to end, exit status 143")));
  EXPECT_TRUE(is_gone(pid_noted("child")));
  EXPECT_EQ(said_.at(0), "rank 1 hangs; the others are told to end");
  EXPECT_THAT(value(events("failure").at(0), "hang"), HasSubstr("no heartbeat for"));
}

TEST_F(HangingRanks, AHangInACollectiveIsFoundAndTheOneBehindIsNamed) {
  const auto result = run(watched(
      2, {"steps=5:5", "r0.beat=6:exchanging", "r1.beat=5:exchanging", "hang"}));
  EXPECT_EQ(result.state, monitor::RunState::failed);
  EXPECT_THAT(result.message, AllOf(StartsWith("rank 1 (pid "),
                                    HasSubstr("as all ranks wait for each other")));
}

TEST_F(HangingRanks, AStoppedRankIsNamedAsStopped) {
  const auto result = run(watched(3, {"steps=5:5", "r2.pid=me", "r2.hang",
                                      "beat=5:exchanging", "note=waits", "hang"}),
                          [this] {
                            EXPECT_TRUE(noted("me "));
                            ::kill(pid_noted("me"), SIGSTOP);
                          });
  EXPECT_EQ(result.state, monitor::RunState::failed);
  EXPECT_THAT(result.message, AllOf(StartsWith("rank 2 (pid "),
                                    HasSubstr("hangs: is stopped (SIGSTOP)")));
}

TEST_F(HangingRanks, ASlowRankIsNoHang) {
  auto job = worker_job(
      2, {"r0.steps=12:200", "r1.steps=3:200", "r1.steps=3:600", "beat=60:finished"});
  job.hang_limits->step_floor = milliseconds(1);
  EXPECT_EQ(run(job).state, monitor::RunState::done);
}

TEST_F(HangingRanks, ARankThatNeverBeatsIsFound) {
  auto job = watched(2, {"r0.steps=1:1", "hang"});
  job.hang_limits->startup = milliseconds(100);
  const auto result = run(job);
  EXPECT_THAT(result.message, AllOf(StartsWith("rank 1 (pid "),
                                    HasSubstr("before its first heartbeat")));
}

TEST_F(HangingRanks, ASingleRankIsWatchedToo) {
  const auto result = run(watched(1, {"steps=5:5", "hang"}));
  EXPECT_EQ(result.state, monitor::RunState::failed);
  EXPECT_THAT(result.message, StartsWith("rank 0 hangs: no heartbeat for 1."));
}

}  // namespace
}  // namespace lockstep
