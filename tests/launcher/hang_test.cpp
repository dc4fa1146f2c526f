#include "lockstep/launcher/hang.h"

#include <functional>

#include "tests/launcher/job_rig.h"

namespace lockstep {
namespace {

using launcher::Hang;
using launcher::HangJudge;
using launcher::HangLimits;
using launcher::RankLook;
using run::Phase;
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
        run::Beat{.step = step,
                  .phase = phase,
                  .time = unix_seconds(clock_.wall()),
                  .pid = 100 + rank};
  }
  void beat_all(std::int64_t step, Phase phase = Phase::training) {
    for (std::size_t i = 0; i < looks_.size(); ++i) {
      beat(static_cast<int>(i), step, phase);
    }
  }

  std::optional<Hang> look() {
    auto verdict = judge_->look(looks_);
    if (verdict.slow) slow_.push_back(*verdict.slow);
    return verdict.hang;
  }

  // How long it takes until a hang is seen, if within `limit`.
  std::optional<milliseconds> quiet_until_hang(
      milliseconds limit, const std::function<void()>& meanwhile = {}) {
    for (milliseconds passed{0}; passed <= limit; passed += milliseconds(100)) {
      hang_ = look();
      if (hang_) return passed;
      if (meanwhile) meanwhile();
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
  std::vector<launcher::SlowRank> slow_;
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
  limits_.step_factor = 500;
  watch(1);
  for (int i = 0; i < 20; ++i) {
    beat(0, step_ += 10);  // 10 ms each
    look();
    clock_.advance(milliseconds(100));
  }
  beat(0, step_ += 10);
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(5'000));
}

// What a rank does is seen over windows of a second: before that nobody knows.
TEST_F(Beats, HoweverShortAFloorIsAKillNeedsTimeForEvidence) {
  limits_.step_floor = milliseconds(100);
  limits_.step_factor = 10;
  watch(1);
  for (int i = 0; i < 20; ++i) {
    beat(0, step_ += 10);
    look();
    clock_.advance(milliseconds(100));
  }
  beat(0, step_ += 10);
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(2'000));
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

// An exchange of much data: one rank adds while the other one waits for the sum.
TEST_F(Beats, WhenAllWaitOneThatWorksProtectsTheOthers) {
  watch(2);
  train(5, milliseconds(200));
  beat_all(step_, Phase::exchanging);
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000),
                             [&] { looks_[0].activity->cpu_seconds += 0.1; }),
            std::nullopt);
}

TEST_F(Beats, WithOtherNodesAllMayWaitAsLongAsASaveTakes) {
  watch(2, true);
  train(5, milliseconds(200));
  beat_all(step_, Phase::exchanging);
  EXPECT_EQ(quiet_until_hang(limits_.saving * 2), limits_.saving);
}

// What a slow and healthy rank may be at, for each 100 ms of it.
struct Work {
  std::string name;
  std::function<void(RankLook&)> go_on;
};

std::vector<Work> kinds_of_work() {
  return {
      {"CPU", [](RankLook& look) { look.activity->cpu_seconds += 0.09; }},
      {"starved", [](RankLook& look) { look.activity->cpu_seconds += 0.006; }},
      {"reads", [](RankLook& look) { look.activity->io_bytes += 200 << 10; }},
      {"disk", [](RankLook& look) { look.activity->storage_bytes += 8 << 10; }},
      {"page faults", [](RankLook& look) { look.activity->major_page_faults += 2; }},
      {"in the kernel", [](RankLook& look) { look.state = 'D'; }},
      {"GPU", [](RankLook& look) { look.gpu_busy = true; }},
      {"GPU not known", [](RankLook& look) { look.gpu_busy.reset(); }},
      {"not to be seen", [](RankLook& look) { look.activity.reset(); }},
  };
}

TEST_F(Beats, ASlowStepThatDoesSomethingIsToldAndLeftAlone) {
  for (const auto& work : kinds_of_work()) {
    watch(1);
    train(10, milliseconds(100));
    slow_.clear();
    const auto found =
        quiet_until_hang(milliseconds(60'000), [&] { work.go_on(looks_[0]); });
    EXPECT_EQ(found, std::nullopt) << work.name;
    ASSERT_EQ(slow_.size(), 1) << work.name;
    EXPECT_EQ(slow_[0].quiet, std::chrono::seconds(3)) << work.name;
    EXPECT_EQ(slow_[0].text,
              "no heartbeat for 3.0 s at step " + std::to_string(step_) +
                  " (training); its usual step takes 0.1 s; it is left alone for 600s "
                  "while it uses CPU, disk or GPU (watch.step_timeout)");
  }
}

TEST_F(Beats, WorkDoesNotProtectForEver) {
  for (const auto& work : kinds_of_work()) {
    watch(1);
    train(10, milliseconds(100));
    const auto found =
        quiet_until_hang(std::chrono::hours(1), [&] { work.go_on(looks_[0]); });
    EXPECT_EQ(found, limits_.step_timeout) << work.name;
  }
}

TEST_F(Beats, AHangAfterSomeWorkIsFoundWithinTheShortLimitOfItsEnd) {
  watch(1);
  train(10, milliseconds(100));
  int busy = 80;  // 8 s
  const auto found = quiet_until_hang(milliseconds(60'000), [&] {
    if (busy-- > 0) looks_[0].activity->cpu_seconds += 0.1;
  });
  EXPECT_EQ(found, milliseconds(11'000));
}

// A thread that samples the machine and writes what it saw.
TEST_F(Beats, WhatIsDoneBesideTheStepsIsNoWork) {
  watch(1);
  train(10, milliseconds(100));
  const auto found = quiet_until_hang(milliseconds(60'000), [&] {
    looks_[0].activity->cpu_seconds += 0.001;
    looks_[0].activity->io_bytes += 20 << 10;
    looks_[0].activity->storage_bytes += 1 << 10;
  });
  EXPECT_EQ(found, milliseconds(3'000));
}

TEST_F(Beats, TheLongLimitIsSeveralTimesTheLongestStepOfTheRun) {
  limits_.step_timeout = std::chrono::seconds(20);
  watch(1);
  train(3, milliseconds(100));
  beat(0, ++step_);
  const auto work = [&] { looks_[0].activity->cpu_seconds += 0.1; };
  EXPECT_EQ(quiet_until_hang(milliseconds(9'900), work), std::nullopt);  // a slow one
  train(40, milliseconds(100));
  EXPECT_EQ(quiet_until_hang(std::chrono::hours(1), work), milliseconds(50'000));
}

// The ranks were started again after a fault.
TEST_F(Beats, TheLongestStepOfAnEarlierAttemptCounts) {
  limits_.step_timeout = std::chrono::seconds(20);
  watch(1);
  train(3, milliseconds(100));
  beat(0, ++step_);
  const auto work = [&] { looks_[0].activity->cpu_seconds += 0.1; };
  EXPECT_EQ(quiet_until_hang(milliseconds(9'900), work), std::nullopt);  // a slow one
  train(1, milliseconds(100));
  judge_->start_again();
  looks_[0] = {};
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), std::nullopt)
      << "its start has the time of a start";
  step_ = 0;
  train(5, milliseconds(100));
  EXPECT_EQ(quiet_until_hang(std::chrono::hours(1), work), milliseconds(50'000));
}

TEST_F(Beats, ALongLimitOfZeroIsNone) {
  limits_.step_timeout = milliseconds(0);
  watch(1);
  train(10, milliseconds(100));
  EXPECT_EQ(quiet_until_hang(std::chrono::hours(1),
                             [&] { looks_[0].activity->cpu_seconds += 0.1; }),
            std::nullopt);
}

// Buffers of rank 0 are waited for at the start of a step, sums of batch normalisation
// in the middle of it: in the phase `training`, without doing anything.
TEST_F(Beats, OneThatDoesNothingMayWaitForOneThatDoes) {
  const std::vector<std::pair<Phase, bool>> others{{Phase::saving, false},
                                                   {Phase::loading, false},
                                                   {Phase::evaluating, false},
                                                   {Phase::warming_up, false},
                                                   {Phase::training, true}};
  for (const auto& [phase, works] : others) {
    watch(2);
    train(10, milliseconds(100));
    beat(0, step_, phase);
    beat(1, step_);
    const auto work = [&, busy = works] {
      if (busy) looks_[0].activity->cpu_seconds += 0.1;
    };
    EXPECT_EQ(quiet_until_hang(milliseconds(60'000), work), std::nullopt)
        << name_of(phase);
  }
}

TEST_F(Beats, OneThatDoesNothingWhileTheOthersWaitIsFound) {
  watch(2);
  train(10, milliseconds(100));
  beat(0, step_, Phase::exchanging);
  beat(1, step_);
  // Whoever waits may well spin.
  const auto found = quiet_until_hang(milliseconds(60'000),
                                      [&] { looks_[0].activity->cpu_seconds += 0.1; });
  EXPECT_EQ(found, milliseconds(3'000));
  EXPECT_EQ(hang_->local_rank, 1);
}

TEST_F(Beats, AThreadThatWaitsForADiskIsNoHang) {
  watch(1);
  train(10, milliseconds(100));
  looks_[0].activity->in_kernel = true;  // the saver's; the step waits for it
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), std::nullopt);
}

// A batch system stops all processes of a job and lets them go on, in any order.
TEST_F(Beats, AShortStopInALongSaveIsNoHang) {
  watch(1);
  train(3, milliseconds(200));
  beat(0, step_, Phase::saving);
  EXPECT_EQ(quiet_until_hang(milliseconds(30'000)), std::nullopt);
  looks_[0].state = 'T';
  EXPECT_EQ(quiet_until_hang(milliseconds(1'000)), std::nullopt);
  looks_[0].state = 'S';
  EXPECT_EQ(quiet_until_hang(milliseconds(30'000)), std::nullopt);
}

// The short last batch of an epoch, for which cuDNN tunes itself anew.
TEST_F(Beats, SomethingDoneForTheFirstTimeHasTheLimitOfAFirstStep) {
  watch(1);
  train(10, milliseconds(100));
  beat(0, step_, Phase::warming_up);
  EXPECT_EQ(quiet_until_hang(limits_.first_step * 2), limits_.first_step);
  ASSERT_EQ(slow_.size(), 1);
  EXPECT_EQ(slow_[0].quiet, limits_.first_step / 10);
  EXPECT_THAT(slow_[0].text, HasSubstr("(warming up)"));
  EXPECT_THAT(slow_[0].text, HasSubstr("left alone for 600s (watch.first_step)"));
}

TEST_F(Beats, AFirstTimeDoesNotMakeTheUsualStepLonger) {
  watch(1);
  train(3, milliseconds(200));
  for (int i = 0; i < 10; ++i) {
    beat(0, step_, Phase::warming_up);
    EXPECT_EQ(quiet_until_hang(milliseconds(30'000)), std::nullopt);
    train(1, milliseconds(200));
  }
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(3'000));
}

TEST_F(Beats, ASlowRankIsToldAgainOnlyAfterItHasMoved) {
  watch(1);
  train(10, milliseconds(100));
  const auto work = [&] { looks_[0].activity->cpu_seconds += 0.1; };
  for (int i = 1; i <= 3; ++i) {
    beat(0, ++step_);
    EXPECT_EQ(quiet_until_hang(milliseconds(20'000), work), std::nullopt);
    EXPECT_EQ(slow_.size(), static_cast<std::size_t>(i));
  }
}

// A data set on a disk of another continent, a checkpoint onto a full one.
TEST_F(Beats, SlowLoadsEvaluationsAndSavesAreToldOnce) {
  const std::vector<std::pair<Phase, std::string>> phases{
      {Phase::loading, "300s (watch.loading)"},
      {Phase::evaluating, "300s (watch.evaluation)"},
      {Phase::saving, "600s (watch.saving)"}};
  for (const auto& [phase, until] : phases) {
    watch(2);
    train(3, milliseconds(200));
    slow_.clear();
    beat(0, step_, Phase::exchanging);
    for (std::size_t times = 1; times <= 2; ++times) {
      beat(1, step_, phase);
      EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), std::nullopt);
      ASSERT_EQ(slow_.size(), times) << name_of(phase);
      EXPECT_EQ(slow_.back().local_rank, 1);
      EXPECT_EQ(slow_.back().quiet, 10 * limits_.step_floor);
      EXPECT_EQ(slow_.back().text,
                str("no heartbeat for 30.0 s at step ", step_, " (", name_of(phase),
                    "); its usual step takes 0.2 s; it is left alone for ", until));
    }
  }
}

TEST_F(Beats, OneThatHasLittleTimeIsToldBeforeItIsOver) {
  limits_.loading = std::chrono::seconds(8);
  limits_.saving = milliseconds(0);
  watch(1);
  train(3, milliseconds(200));
  beat(0, step_, Phase::loading);
  EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(8'000));
  ASSERT_EQ(slow_.size(), 1);
  EXPECT_EQ(slow_[0].quiet, std::chrono::seconds(4));
  beat(0, step_, Phase::saving);
  EXPECT_EQ(quiet_until_hang(std::chrono::hours(1)), std::nullopt);
  ASSERT_EQ(slow_.size(), 2);
  EXPECT_THAT(slow_[1].text, ::testing::EndsWith("; it is left alone"));
}

TEST_F(Beats, AProcessThatIsStoppedWhileItStartsIsEndedAfterTheFloor) {
  for (const bool beats : {false, true}) {
    watch(2);
    if (beats) beat_all(0, Phase::starting);
    looks_[1].state = 'T';
    EXPECT_EQ(quiet_until_hang(milliseconds(60'000)), milliseconds(3'000)) << beats;
    EXPECT_EQ(hang_->local_rank, 1);
  }
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
  EXPECT_EQ(result.state, run::RunStatus::failed);
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.message,
              AllOf(StartsWith("rank 1 (pid "), HasSubstr(") hangs: no heartbeat for "),
                    HasSubstr(" s at step 5 (training)"),
                    HasSubstr("told to end, exit status 143")));
  EXPECT_TRUE(is_gone(pid_noted("child")));
  EXPECT_THAT(said_, ::testing::Contains("rank 1 hangs; the others are told to end"));
  EXPECT_THAT(value(events("failure").at(0), "hang"), HasSubstr("no heartbeat for"));
}

TEST_F(HangingRanks, AHangInACollectiveIsFoundAndTheOneBehindIsNamed) {
  const auto result = run(watched(
      2, {"steps=5:5", "r0.beat=6:exchanging", "r1.beat=5:exchanging", "hang"}));
  EXPECT_EQ(result.state, run::RunStatus::failed);
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
  EXPECT_EQ(result.state, run::RunStatus::failed);
  EXPECT_THAT(result.message, AllOf(StartsWith("rank 2 (pid "),
                                    HasSubstr("hangs: is stopped (SIGSTOP)")));
}

TEST_F(HangingRanks, ASlowRankIsNoHang) {
  auto job = worker_job(
      2, {"r0.steps=12:200", "r1.steps=3:200", "r1.steps=3:600", "beat=60:finished"});
  job.hang_limits->step_floor = milliseconds(1);
  EXPECT_EQ(run(job).state, run::RunStatus::done);
}

// Slow for three times the limit at which one that does nothing is ended.
TEST_F(HangingRanks, OneThatComputesOrReadsIsSlowAndLeftAlone) {
  for (const auto* work : {"spin=3000", "read=3000", "write=3000"}) {
    said_.clear();
    const auto result =
        run(watched(1, {"steps=5:5", work, "steps=5:5", "beat=10:finished"}));
    EXPECT_EQ(result.state, run::RunStatus::done) << work << result.message;
    ASSERT_FALSE(said_.empty()) << work;
    EXPECT_THAT(said_[0], AllOf(StartsWith("rank 0 is slow: no heartbeat for "),
                                HasSubstr("at step 5 (training)")));
  }
  const auto told = events("slow").at(0);
  EXPECT_EQ(value(told, "rank"), "0");
  EXPECT_EQ(value(told, "step"), "5");
  EXPECT_EQ(value(told, "phase"), "training");
}

// A step of 2.5 s in the first life of a rank; one of 4 s in its second is not too long
// then, though the limit for one that does something is shorter.
TEST_F(HangingRanks, WhatWasLearntOfStepsHoldsForTheNextAttempt) {
  auto job = watched(1, {"steps=5:5", "a0.spin=2500", "steps=5:100", "a0.die=9",
                         "a1.spin=4000", "steps=5:5", "beat=20:finished"});
  job.hang_limits->step_timeout = milliseconds(3'000);
  job.first.max_restarts = 1;
  const auto result = run(job);
  EXPECT_EQ(result.state, run::RunStatus::done) << result.message;
  EXPECT_EQ(result.restarts, 1);
}

TEST_F(HangingRanks, OneThatWarmsUpMayDoNothing) {
  auto job = watched(1, {"steps=5:5", "beat=5:warming up", "pause=2000", "steps=5:5",
                         "beat=10:finished"});
  job.hang_limits->first_step = std::chrono::minutes(1);
  EXPECT_EQ(run(job).state, run::RunStatus::done);
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
  EXPECT_EQ(result.state, run::RunStatus::failed);
  EXPECT_THAT(result.message, StartsWith("rank 0 hangs: no heartbeat for "));
}

}  // namespace
}  // namespace lockstep
