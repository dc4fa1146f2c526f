#include <signal.h>

#include "lockstep/launcher/launcher.h"
#include "lockstep/monitor/error_file.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using launcher::WorkerEnd;
using monitor::RunState;
using ::testing::HasSubstr;

// What the end of a rank means, with a run directory it may have left things in.
class Judge : public ::testing::Test {
 protected:
  launcher::RunResult judge(const WorkerEnd& worker) {
    return launcher::judge(run_, worker);
  }
  static WorkerEnd exited(int status) {
    return {.end = {.exit_status = status, .signal = 0}};
  }
  static WorkerEnd killed(int signal) {
    return {.end = {.exit_status = 0, .signal = signal}};
  }

  files::TemporaryDirectory parent_;
  monitor::RunDirectory run_ = monitor::RunDirectory::create(
      parent_.path(), {.name = "x", .record = {}, .config_yaml = "", .plan_json = ""});
};

TEST_F(Judge, StatusZeroIsDone) {
  const auto result = judge(exited(0));
  EXPECT_EQ(result.state, RunState::done);
  EXPECT_EQ(result.exit, 0);
  EXPECT_EQ(result.message, "");
}

TEST_F(Judge, DoneStaysDoneWhenTheStopCameTooLate) {
  auto worker = exited(0);
  worker.asked_by = SIGINT;
  EXPECT_EQ(judge(worker).state, RunState::done);
}

TEST_F(Judge, ACleanStopIsStoppedWithTheSignalsStatus) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) {
    const auto result = judge(exited(128 + number));
    EXPECT_EQ(result.state, RunState::stopped) << number;
    EXPECT_EQ(result.exit, 128 + number);
  }
  EXPECT_EQ(judge(exited(130)).message, "stopped by SIGINT");
}

TEST_F(Judge, AResumableStopKeepsItsStatus) {
  const auto result = judge(exited(kExitStopped));
  EXPECT_EQ(result.state, RunState::stopped);
  EXPECT_EQ(result.exit, 75);
}

TEST_F(Judge, FaultsBecomeTheShellsStatuses) {
  EXPECT_EQ(judge(exited(exit_status(Fault::config))).exit, 2);
  EXPECT_EQ(judge(exited(exit_status(Fault::hardware))).exit, 3);
  EXPECT_EQ(judge(exited(exit_status(Fault::io))).exit, 3);
  EXPECT_EQ(judge(exited(exit_status(Fault::comm))).exit, 1);
  EXPECT_EQ(judge(exited(exit_status(Fault::internal))).exit, 1);
  EXPECT_EQ(judge(exited(1)).exit, 1);
  EXPECT_EQ(judge(exited(127)).exit, 1);
  EXPECT_EQ(judge(exited(128 + SIGSEGV)).state, RunState::failed);
}

TEST_F(Judge, TheErrorFileIsTheMessage) {
  monitor::write_error(run_.error(0), {.fault = Fault::io, .message = "data: no file"});
  const auto result = judge(exited(exit_status(Fault::io)));
  EXPECT_EQ(result.state, RunState::failed);
  EXPECT_EQ(result.message, "data: no file");
}

TEST_F(Judge, WithoutAnErrorFileTheEndOfTheLogIs) {
  std::string log;
  for (int i = 0; i < 100; ++i) log += "line " + std::to_string(i) + "\n";
  test::write_file(run_.log(0), log);
  const auto result = judge(killed(SIGSEGV));
  EXPECT_EQ(result.state, RunState::failed);
  EXPECT_EQ(result.exit, 128 + SIGSEGV);
  EXPECT_THAT(
      result.message,
      ::testing::StartsWith("rank 0 ended by signal 11 (Segmentation fault); last "
                            "lines of its log:\n  line 92\n"));
  EXPECT_THAT(result.message, ::testing::EndsWith("line 99"));
  EXPECT_THAT(judge(exited(9)).message,
              HasSubstr("rank 0 ended with exit status 9; last"));
}

TEST_F(Judge, WithoutALogTheEndAloneIs) {
  EXPECT_EQ(judge(killed(SIGABRT)).message, "rank 0 ended by signal 6 (Aborted)");
}

TEST_F(Judge, AKillFromOutsideIsAFailureAndAGuessSaysWhy) {
  const auto result = judge(killed(SIGKILL));
  EXPECT_EQ(result.state, RunState::failed);
  EXPECT_EQ(result.exit, 137);
  EXPECT_THAT(result.message, HasSubstr("want of memory"));
}

TEST_F(Judge, AKillByUsIsStopped) {
  auto worker = killed(SIGKILL);
  worker.asked_by = SIGTERM;
  worker.killed = true;
  const auto result = judge(worker);
  EXPECT_EQ(result.state, RunState::stopped);
  EXPECT_EQ(result.exit, 143);
  EXPECT_THAT(result.message, HasSubstr("was killed after SIGTERM"));
}

TEST_F(Judge, ARankThatDiedOfTheForwardedSignalIsStopped) {
  auto worker = killed(SIGINT);
  worker.asked_by = SIGINT;
  EXPECT_EQ(judge(worker).state, RunState::stopped);
  EXPECT_EQ(judge(worker).exit, 130);
}

TEST_F(Judge, ACrashDuringAStopIsStillAFailure) {
  auto worker = killed(SIGSEGV);
  worker.asked_by = SIGINT;
  EXPECT_EQ(judge(worker).state, RunState::failed);
}

}  // namespace
}  // namespace lockstep
