// What a quiet rank does counts: it is slow, or stopped, or hangs.
#include "tests/launcher/beats.h"

namespace lockstep {
namespace {

using launcher::RankLook;
using run::Phase;
using std::chrono::milliseconds;
using test::Beats;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

}  // namespace
}  // namespace lockstep
