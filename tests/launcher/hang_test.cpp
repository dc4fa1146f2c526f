// Whose turn it is to be quiet, and for how long.
#include "tests/launcher/beats.h"

namespace lockstep {
namespace {

using run::Phase;
using std::chrono::milliseconds;
using test::Beats;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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

}  // namespace
}  // namespace lockstep
