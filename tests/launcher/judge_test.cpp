#include "lockstep/launcher/detail/judge.h"

#include <signal.h>

#include "lockstep/run/error_file.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using launcher::RankEnd;
using run::RunStatus;
using ::testing::AllOf;
using ::testing::HasSubstr;

// What the ends of ranks mean, with a run directory they may have left things in.
class Judge : public ::testing::Test {
 protected:
  launcher::JobResult judge(const RankEnd& end) {
    return launcher::judge(run_, workers(1), {end});
  }
  launcher::JobResult judge(std::vector<RankEnd> ends) {
    const auto job = workers(ends.size());
    for (std::size_t i = 0; i < ends.size(); ++i) {
      ends[i].rank = ends[i].local_rank = static_cast<int>(i);
      ends[i].pid = static_cast<pid_t>(100 + i);
    }
    return launcher::judge(run_, job, std::move(ends));
  }
  static launcher::Job workers(std::size_t count) {
    launcher::Job job;
    job.ranks.resize(count);
    job.first.world_size = static_cast<int>(count);
    job.hang_limits.emplace();
    return job;
  }
  static RankEnd exited(int status, double time = 0) {
    RankEnd end;
    end.end.exit_status = status;
    end.time = time;
    return end;
  }
  static RankEnd killed(int signal, double time = 0) {
    RankEnd end;
    end.end.signal = signal;
    end.time = time;
    return end;
  }
  static RankEnd told(RankEnd end) {
    end.told = true;
    return end;
  }
  void leaves_error(int rank, Fault fault, const std::string& message, double time) {
    ManualClock clock;
    clock.advance(std::chrono::milliseconds(static_cast<int>(time * 1000)));
    run::write_error(run_.error(rank),
                     {.fault = fault, .message = message, .rank = rank}, clock);
  }

  files::TemporaryDirectory parent_;
  run::RunDirectory run_ = run::RunDirectory::create(
      parent_.path(), {.name = "x", .record = {}, .config_yaml = "", .plan_json = ""});
};

TEST_F(Judge, StatusZeroIsDone) {
  const auto result = judge(exited(0));
  EXPECT_EQ(result.state, RunStatus::done);
  EXPECT_EQ(result.exit, 0);
  EXPECT_EQ(result.message, "");
}

TEST_F(Judge, AResultThatCouldNotBePrintedMakesNoFailureOfADoneRun) {
  const auto result = judge({exited(launcher::kExitUnprinted), exited(0)});
  EXPECT_EQ(result.state, RunStatus::done);
  EXPECT_EQ(result.exit, kExitEnvironment);
  EXPECT_EQ(result.message, "");
}

TEST_F(Judge, DoneStaysDoneWhenTheStopCameTooLate) {
  auto worker = exited(0);
  worker.asked_by = SIGINT;
  EXPECT_EQ(judge(worker).state, RunStatus::done);
}

TEST_F(Judge, ACleanStopIsStoppedWithTheSignalsStatus) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const auto result = judge(exited(128 + number));
    EXPECT_EQ(result.state, RunStatus::stopped) << number;
    EXPECT_EQ(result.exit, 128 + number);
  }
  EXPECT_EQ(judge(exited(130)).message, "stopped by SIGINT");
}

TEST_F(Judge, AResumableStopKeepsItsStatus) {
  const auto result = judge(exited(kExitStopped));
  EXPECT_EQ(result.state, RunStatus::stopped);
  EXPECT_EQ(result.exit, 75);
}

// Whenever the rank was hit: at its start, in a step, at its very end.
TEST_F(Judge, AStopOfARunThatHasACheckpointIsResumable) {
  auto job = workers(1);
  job.resumes = true;
  auto by_default = killed(SIGTERM);
  by_default.asked_by = SIGTERM;
  auto too_slow = killed(SIGKILL);
  too_slow.asked_by = SIGUSR1;
  too_slow.killed = true;
  auto by_person = exited(128 + SIGINT);
  by_person.asked_by = SIGINT;
  const std::vector<std::pair<RankEnd, int>> stops{{by_default, SIGTERM},
                                                   {too_slow, SIGUSR1},
                                                   {exited(128 + SIGTERM), SIGTERM},
                                                   {exited(128 + SIGHUP), SIGHUP}};
  for (const auto& [end, number] : stops) {
    EXPECT_EQ(launcher::judge(run_, job, {end}).exit, 128 + number);
  }
  std::filesystem::create_directories(run_.checkpoints() / "step_5");
  for (const auto& [end, number] : stops) {
    const auto result = launcher::judge(run_, job, {end});
    EXPECT_EQ(result.exit, 75) << number;
    EXPECT_EQ(result.state, RunStatus::stopped);
  }
  EXPECT_EQ(launcher::judge(run_, job, {by_person}).exit, 130);
  job.resumes = false;  // checkpoint.resume=never
  EXPECT_EQ(launcher::judge(run_, job, {by_default}).exit, 143);
}

TEST_F(Judge, ARunThatWasTakenOverHasFailedHere) {
  auto end = killed(SIGKILL);
  end.lost_to = "process 7 on nodeB";
  const auto result = judge(end);
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.message, "the run was taken over by process 7 on nodeB");
}

TEST_F(Judge, ARunWhoseDirectoryIsGoneIsAnIoFailure) {
  auto end = killed(SIGKILL);
  end.homeless = true;
  const auto result = judge(end);
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 3);
  EXPECT_EQ(result.message, "the run directory " + run_.path().string() + " is gone");
}

TEST_F(Judge, TheFaultOfTheFirstFailureIsPassedOn) {
  leaves_error(1, Fault::diverged, "the loss is NaN", 1);
  EXPECT_EQ(judge({told(exited(143)), exited(6)}).fault, Fault::diverged);
  EXPECT_EQ(judge(exited(exit_status(Fault::io))).fault, Fault::io);
  EXPECT_EQ(judge(killed(SIGSEGV)).fault, std::nullopt);
  EXPECT_EQ(judge(exited(0)).fault, std::nullopt);
}

// A full disk takes no error file, but the log may have had a little room.
TEST_F(Judge, WithoutAnErrorFileTheErrorInTheLogIsTheReason) {
  test::write_file(run_.log(0),
                   "I 12:03:43.125 r0 train    4 steps\n"
                   "E 12:03:44.125 r0 train    cannot write 'x': no space left\n");
  EXPECT_THAT(judge(exited(4)).message,
              ::testing::StartsWith("rank 0 ended with exit status 4: cannot write "
                                    "'x': no space left; last lines of its log:\n"));
  EXPECT_THAT(judge(killed(SIGSEGV)).message,
              ::testing::StartsWith("rank 0 ended by signal 11 (SIGSEGV); "
                                    "last lines"));
}

TEST_F(Judge, AProgramThatCouldNotBeLoadedSaysWhatToLookFor) {
  EXPECT_THAT(judge(exited(127)).message,
              ::testing::MatchesRegex("rank 0 ended with exit status 127: the program "
                                      "or a library that it needs could not be loaded: "
                                      "a missing file, or too little memory .*"
                                      "ulimit -v\\)"));
  test::write_file(run_.log(0), "libtorch.so: failed to map segment\n");
  EXPECT_THAT(judge(exited(127)).message,
              AllOf(HasSubstr("; see " + run_.log(0).string()),
                    HasSubstr("libtorch.so: failed to map segment")));
}

TEST_F(Judge, FaultsBecomeTheShellsStatuses) {
  EXPECT_EQ(judge(exited(exit_status(Fault::config))).exit, 2);
  EXPECT_EQ(judge(exited(exit_status(Fault::hardware))).exit, 3);
  EXPECT_EQ(judge(exited(exit_status(Fault::io))).exit, 3);
  EXPECT_EQ(judge(exited(exit_status(Fault::comm))).exit, 1);
  EXPECT_EQ(judge(exited(exit_status(Fault::internal))).exit, 1);
  EXPECT_EQ(judge(exited(1)).exit, 1);
  EXPECT_EQ(judge(exited(127)).exit, 1);
  EXPECT_EQ(judge(exited(128 + SIGSEGV)).state, RunStatus::failed);
}

TEST_F(Judge, TheErrorFileIsTheMessage) {
  run::write_error(run_.error(0), {.fault = Fault::io, .message = "data: no file"});
  const auto result = judge(exited(exit_status(Fault::io)));
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.message, "data: no file");
}

TEST_F(Judge, WithoutAnErrorFileTheEndOfTheLogIs) {
  std::string log;
  for (int i = 0; i < 100; ++i) log += "line " + std::to_string(i) + "\n";
  test::write_file(run_.log(0), log);
  const auto result = judge(killed(SIGSEGV));
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 128 + SIGSEGV);
  EXPECT_THAT(result.message,
              ::testing::StartsWith("rank 0 ended by signal 11 (SIGSEGV); last "
                                    "lines of its log:\n  line 92\n"));
  EXPECT_THAT(result.message, ::testing::EndsWith("line 99"));
  EXPECT_THAT(judge(exited(9)).message,
              HasSubstr("rank 0 ended with exit status 9; last"));
}

TEST_F(Judge, WithoutALogTheEndAloneIs) {
  EXPECT_EQ(judge(killed(SIGABRT)).message, "rank 0 ended by signal 6 (SIGABRT)");
}

TEST_F(Judge, AKillFromOutsideIsAFailureAndAGuessSaysWhy) {
  const auto result = judge(killed(SIGKILL));
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 137);
  EXPECT_THAT(result.message, HasSubstr("out-of-memory killer"));
}

TEST_F(Judge, AKillByUsIsStopped) {
  auto worker = killed(SIGKILL);
  worker.asked_by = SIGTERM;
  worker.killed = true;
  const auto result = judge(worker);
  EXPECT_EQ(result.state, RunStatus::stopped);
  EXPECT_EQ(result.exit, 143);
  EXPECT_THAT(result.message, HasSubstr("was killed after SIGTERM"));
}

TEST_F(Judge, ARankThatDiedOfTheForwardedSignalIsStopped) {
  auto worker = killed(SIGINT);
  worker.asked_by = SIGINT;
  EXPECT_EQ(judge(worker).state, RunStatus::stopped);
  EXPECT_EQ(judge(worker).exit, 130);
}

TEST_F(Judge, ACrashDuringAStopIsStillAFailure) {
  auto worker = killed(SIGSEGV);
  worker.asked_by = SIGINT;
  EXPECT_EQ(judge(worker).state, RunStatus::failed);
}

TEST_F(Judge, TheFirstByTimeIsNamedAndTheOthersAreSummedUp) {
  test::write_file(run_.log(2), "last words\n");
  auto gone = told(killed(SIGKILL, 9));
  gone.killed = true;
  const auto result = judge({told(exited(143, 5)), exited(7, 3), killed(SIGSEGV, 2),
                             gone, exited(0, 1), told(killed(SIGTERM, 4))});
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 139);
  EXPECT_THAT(result.message, ::testing::MatchesRegex(
                                  "rank 2 \\(pid 102 on .+\\) ended by signal 11 "
                                  "\\(SIGSEGV\\); last lines of its log:\n"
                                  "  last words\n"
                                  "rank 0 \\(pid 100\\) got SIGTERM, exit status 143\n"
                                  "rank 1 \\(pid 101\\) ended with exit status 7\n"
                                  "rank 3 \\(pid 103\\) got SIGTERM, did not exit, was "
                                  "killed\n"
                                  "rank 4 \\(pid 104\\) exited 0\n"
                                  "rank 5 \\(pid 105\\) got SIGTERM, signal 15 "
                                  "\\(SIGTERM\\)"));
}

TEST_F(Judge, ALostPeerIsAConsequenceEvenWhenItIsSeenFirst) {
  leaves_error(0, Fault::comm, "comm: rank 1 is gone", 1);
  const auto result = judge({exited(5, 1), told(killed(SIGKILL, 2))});
  EXPECT_EQ(result.exit, 137);
  EXPECT_THAT(result.message, ::testing::StartsWith("rank 1 (pid 101"));
  EXPECT_THAT(result.message, HasSubstr("rank 0 (pid 100) ended with exit status 5: "
                                        "comm: rank 1 is gone"));
}

TEST_F(Judge, WithoutABetterReasonALostPeerIsTheReason) {
  leaves_error(0, Fault::comm, "comm: node 1 is gone", 1);
  leaves_error(1, Fault::comm, "comm: node 1 is gone", 1.5);
  const auto result = judge({exited(5, 1), exited(5, 2)});
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.message, HasSubstr("exit status 5 (comm): comm: node 1 is gone"));
  EXPECT_THAT(result.message, ::testing::StartsWith("rank 0 "));
}

TEST_F(Judge, EndsOfTheSameMomentAreOrderedByTheirErrorFiles) {
  leaves_error(0, Fault::io, "later", 2);
  leaves_error(1, Fault::config, "earlier", 1);
  const auto result = judge({exited(4, 1), exited(2, 1)});
  EXPECT_EQ(result.exit, 2);
  EXPECT_THAT(result.message, HasSubstr("exit status 2 (config): earlier"));
}

TEST_F(Judge, AHangAndAnEarlyEndAreFailures) {
  auto hangs = killed(SIGKILL, 1);
  hangs.hang = "no heartbeat for 3.0 s";
  auto result = judge({exited(0), hangs});
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.message, HasSubstr(") hangs: no heartbeat for 3.0 s"));
  auto early = exited(0);
  early.early = true;
  result = judge({early, told(exited(143))});
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.message, HasSubstr("exit status 0 before it had finished"));
}

TEST_F(Judge, RanksThatLoseEachOtherInAStopAreStopped) {
  auto first = killed(SIGTERM), second = exited(5);
  first.asked_by = second.asked_by = SIGTERM;
  EXPECT_EQ(judge({first, second}).state, RunStatus::stopped);
  EXPECT_EQ(judge({first, second}).exit, 143);
  first.end = {.exit_status = 0, .signal = SIGSEGV};
  EXPECT_EQ(judge({first, second}).exit, 139);
}

TEST_F(Judge, AnyOtherProgramMayMeanAnythingByItsStatus) {
  auto job = workers(1);
  job.hang_limits.reset();
  const auto result = launcher::judge(run_, job, {exited(143)});
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 1);
  EXPECT_EQ(launcher::judge(run_, job, {exited(2)}).exit, 1);
  EXPECT_TRUE(launcher::is_retryable(run_, job, exited(2)));
  auto asked = exited(143);
  asked.asked_by = SIGTERM;
  EXPECT_EQ(launcher::judge(run_, job, {asked}).state, RunStatus::stopped);
}

TEST_F(Judge, ConfigAndDivergedDoNotGetBetter) {
  for (const auto fault : {Fault::config, Fault::hardware, Fault::io, Fault::comm,
                           Fault::diverged, Fault::internal}) {
    const bool hopeless = fault == Fault::config || fault == Fault::diverged;
    const auto end = exited(exit_status(fault));
    EXPECT_EQ(launcher::is_retryable(run_, workers(1), end), !hopeless);
  }
  leaves_error(0, Fault::config, "no such model", 1);
  EXPECT_FALSE(launcher::is_retryable(run_, workers(1), exited(1)));
  EXPECT_TRUE(launcher::is_retryable(run_, workers(1), killed(SIGKILL)));
}

}  // namespace
}  // namespace lockstep
