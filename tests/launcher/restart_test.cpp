#include "tests/launcher/job_rig.h"

namespace lockstep {
namespace {

using run::RunStatus;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class Restart : public test::JobRig {
 protected:
  launcher::Job with_restarts(int count, std::vector<std::string> words) {
    auto job = worker_job(2, std::move(words));
    job.first.max_restarts = count;
    return job;
  }
};

TEST_F(Restart, AllRanksStartAgainAndSeeTheirAttempt) {
  const auto job = with_restarts(
      3, {"note=here", "env=TORCHELASTIC_RESTART_COUNT",
          "env=TORCHELASTIC_MAX_RESTARTS", "a0.r1.say=first words", "a0.r1.die=9",
          "a0.answer=15", "a0.hang", "a1.r0.fault=comm:lost", "beat=9:finished"});
  const auto result = run(job);
  EXPECT_EQ(result.state, RunStatus::done) << result.message;
  EXPECT_EQ(result.exit, 0);
  EXPECT_EQ(result.restarts, 2);
  EXPECT_THAT(test::read_file(notes_),
              AllOf(HasSubstr("RESTART_COUNT=0\n"), HasSubstr("RESTART_COUNT=1\n"),
                    HasSubstr("RESTART_COUNT=2\n"), Not(HasSubstr("RESTART_COUNT=3\n")),
                    HasSubstr("MAX_RESTARTS=3\n")));
  const auto restarts = events("restart");
  ASSERT_EQ(restarts.size(), 2U);
  EXPECT_EQ(value(restarts[0], "attempt"), "1");
  EXPECT_EQ(value(restarts[0], "of"), "3");
  EXPECT_THAT(
      value(restarts[0], "reason"),
      AllOf(StartsWith("rank 1 (pid "), HasSubstr("ended by signal 9 (SIGKILL)")));
  EXPECT_EQ(value(restarts[0], "after_seconds"), "0.001");
  EXPECT_EQ(value(restarts[1], "after_seconds"), "0.002");
  EXPECT_THAT(value(restarts[1], "reason"), HasSubstr("exit status 5 (comm): lost"));
  EXPECT_EQ(events("failure").size(), 2U);
  EXPECT_EQ(events("launched").size(), 3U);
  EXPECT_EQ(test::read_file(run_.log(1)), "first words\n");
  EXPECT_THAT(said_,
              ::testing::Contains(HasSubstr("; all ranks restart in 1ms (1 of 3)")));
  // The error of an earlier attempt is not that of the last.
  EXPECT_FALSE(std::filesystem::exists(run_.error(0)));
}

TEST_F(Restart, TheLastAttemptIsTheResult) {
  const auto result = run(with_restarts(2, {"a0.exit=3", "a1.exit=4", "a2.exit=70"}));
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.restarts, 2);
  EXPECT_THAT(result.message, HasSubstr("ended with exit status 70"));
  EXPECT_EQ(events("restart").size(), 2U);
  EXPECT_EQ(events("failure").size(), 3U);
}

TEST_F(Restart, WithoutRestartsThereIsNone) {
  const auto result = run(with_restarts(0, {"note=here", "exit=3"}));
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_TRUE(events("restart").empty());
}

TEST_F(Restart, WhatCanNotGetBetterIsNotTriedAgain) {
  for (const auto* fault :
       {"fault=config:no such model", "fault=diverged:loss is NaN"}) {
    const auto result = run(with_restarts(3, {fault}));
    EXPECT_EQ(result.state, RunStatus::failed);
    EXPECT_EQ(result.restarts, 0) << fault;
    EXPECT_TRUE(events("restart").empty()) << fault;
  }
}

TEST_F(Restart, AStopDuringTheBackOffEndsTheJob) {
  auto job = with_restarts(1, {"exit=3"});
  job.restart_delay = test::kPatience * 10;
  const auto result = run(job, [this] {
    EXPECT_TRUE(test::eventually([this] { return !events("restart").empty(); }));
    ::kill(::getpid(), SIGTERM);
  });
  EXPECT_EQ(result.state, RunStatus::stopped);
  EXPECT_EQ(result.exit, 143);
  EXPECT_THAT(result.message, StartsWith("stopped by SIGTERM before a restart; rank "));
}

TEST_F(Restart, ARankThatFailsWhenAskedToStopIsNotStartedAgain) {
  const auto result =
      run(with_restarts(3, {"crash_on=15", "beat=1:training", "note=ready", "hang"}),
          [this] {
            EXPECT_TRUE(noted_by_all("ready", 2));
            ::kill(::getpid(), SIGTERM);
          });
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.restarts, 0);
}

TEST_F(Restart, AHangIsAReason) {
  auto job = with_restarts(1, {"a0.r1.steps=3:1", "a0.r1.hang", "a0.beat=9:exchanging",
                               "a0.hang", "beat=9:finished"});
  job.hang_limits->step_floor = std::chrono::milliseconds(1'000);
  job.hang_limits->first_step = job.hang_limits->step_floor;
  const auto result = run(job);
  EXPECT_EQ(result.state, RunStatus::done) << result.message;
  EXPECT_EQ(result.restarts, 1);
  EXPECT_THAT(value(events("restart").at(0), "reason"),
              HasSubstr("hangs: no heartbeat for"));
}

TEST_F(Restart, TheBackOffHasALimit) {
  auto job = with_restarts(7, {"exit=3"});
  run(job);
  std::vector<std::string> waits;
  for (const auto& event : events("restart"))
    waits.push_back(value(event, "after_seconds"));
  EXPECT_THAT(waits,
              ElementsAre("0.001", "0.002", "0.004", "0.008", "0.016", "0.03", "0.03"));
}

}  // namespace
}  // namespace lockstep
