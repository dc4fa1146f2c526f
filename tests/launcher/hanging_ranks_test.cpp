// Real processes that hang.
#include "tests/launcher/job_rig.h"

namespace lockstep {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::StartsWith;

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
                    HasSubstr("got SIGTERM, exit status 143")));
  EXPECT_TRUE(test::eventually([this] { return is_gone(pid_noted("child")); }));
  EXPECT_THAT(said_, ::testing::Contains("rank 1 hangs; the other ranks get SIGTERM"));
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
        run(watched(1, {"steps=5:50", work, "steps=5:5", "beat=10:finished"}));
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
  auto job = watched(1, {"steps=5:50", "a0.spin=2500", "steps=5:100", "a0.die=9",
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
  job.hang_limits->startup = milliseconds(1'000);
  job.hang_limits->first_step = test::kPatience;  // rank 0 is not meant
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
