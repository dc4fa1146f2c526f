#include <atomic>
#include <mutex>
#include <thread>

#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/launcher/job.h"
#include "lockstep/run/error_file.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using launcher::JobResult;
using launcher::Signals;
using run::RunStatus;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A clock that the helper thread moves.
class MovedClock : public Clock {
 public:
  SteadyTime now() const override { return SteadyTime(moved_.load()); }
  WallTime wall() const override { return WallTime(); }
  void advance(std::chrono::milliseconds by) { moved_ = moved_.load() + by; }

 private:
  std::atomic<SteadyTime::duration> moved_{SteadyTime::duration(0)};
};

// Real processes as workers: shell scripts that write down what happens to them. A
// worker says `ready` when its traps are set; the test's helper thread then signals
// this process, as a terminal would.
class Launcher : public ::testing::Test {
 protected:
  void SetUp() override {
    ::mkfifo(fifo_.c_str(), 0600);
    // Whoever runs the tests in the background may have these ignored.
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
  }

  // Runs `script` as the worker. $1 is --run-dir, $2 the run directory, which $notes
  // and $never are in; `cat $never` waits until it is killed.
  JobResult run(const std::string& script, const std::function<void()>& meanwhile = {},
                std::chrono::milliseconds grace = test::kPatience) {
    const auto program = parent_.path() / "worker";
    test::write_file(program, "#!/bin/sh\nnotes=" + notes_.string() +
                                  "\nnever=" + fifo_.string() + "\n" + script);
    std::filesystem::permissions(program, std::filesystem::perms(0755));
    Signals signals;  // before the helper thread, which inherits the mask
    std::jthread helper;
    if (meanwhile) helper = std::jthread(meanwhile);
    auto job = one_rank({program.string(), "--run-dir", run_.path().string()});
    job.environment = {{"LOCKSTEP_TEST", "yes"}};
    job.grace = grace;
    job.say = [this](std::string_view sentence) { said_.emplace_back(sentence); };
    job.clock = clock_;
    return launcher::run_job(run_, job, signals);
  }

  // As `lockstep train` starts it.
  static launcher::Job one_rank(std::vector<std::string> command) {
    launcher::Job job;
    job.command = std::move(command);
    job.ranks = {{.place = {}, .owns_terminal = true}};
    job.hang_limits.emplace();
    return job;
  }

  std::vector<std::string> notes() const {
    auto lines = text::split(test::read_file(notes_), '\n');
    lines.pop_back();
    return lines;
  }

  bool noted(const std::string& word) const {
    return test::eventually(
        [&] { return test::read_file(notes_).find(word) != std::string::npos; });
  }

  // The launcher has it: it does not wait in the kernel any more.
  static bool taken(int number) {
    return test::eventually([number] {
      sigset_t pending;
      ::sigpending(&pending);
      return ::sigismember(&pending, number) == 0;
    });
  }

  std::function<void()> when_ready(std::initializer_list<int> numbers) {
    const std::vector<int> all(numbers);
    return [this, all] {
      for (std::size_t i = 0; i < all.size(); ++i) {
        // Each is seen by the worker before the next one: two equal pending signals are
        // one.
        ASSERT_TRUE(noted(i == 0 ? "ready" : "got " + std::to_string(i)));
        ::kill(::getpid(), all[i]);
      }
    };
  }

  // Counts the signals that reach the worker.
  static constexpr auto kCount =
      "n=0; got() { n=$((n+1)); echo \"got $n $1\" >> $notes; }\n";

  files::TemporaryDirectory parent_;
  files::Path notes_ = parent_.path() / "notes";
  files::Path fifo_ = parent_.path() / "fifo";
  run::RunDirectory run_ = run::RunDirectory::create(
      parent_.path() / "runs",
      {.name = "x", .record = {}, .config_yaml = "", .plan_json = ""});
  std::vector<std::string> said_;
  MovedClock moved_;
  const Clock* clock_ = &Clock::system();
};

// Waits for signals without dying of them; sh runs a trap after its child ends, so the
// child is a background one.
constexpr auto kWait = "cat $never & while :; do wait; done\n";

TEST_F(Launcher, AWorkerThatEndsWellIsDone) {
  const auto result =
      run("echo \"$1 $2 $LOCKSTEP_TEST\" >> $notes; grep state $2/run.json >> $notes");
  EXPECT_EQ(result.state, RunStatus::done);
  EXPECT_EQ(result.exit, 0);
  EXPECT_EQ(notes().front(), "--run-dir " + run_.path().string() + " yes");
  const auto record = run_.read_record();
  EXPECT_EQ(record.state, RunStatus::done);
  EXPECT_EQ(record.exit, 0);
  EXPECT_NE(record.finished, "");
}

TEST_F(Launcher, TheRecordSaysRunningMeanwhile) {
  const auto result =
      run("echo ready >> $notes; until [ -e $notes.go ]; do :; done", [this] {
        EXPECT_TRUE(noted("ready"));
        EXPECT_TRUE(test::eventually(
            [&] { return run_.read_record().state == RunStatus::running; }));
        test::write_file(notes_.string() + ".go", "");
      });
  EXPECT_EQ(result.state, RunStatus::done);
}

TEST_F(Launcher, AFailedWorkersErrorIsInTheRecord) {
  const auto said = run_.path() / "said";
  run::write_error(said, {.fault = Fault::config, .message = "model: no"});
  const auto result = run("cp $2/said $2/error_rank_0.json; exit 2");
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 2);
  EXPECT_EQ(run_.read_record().message, "model: no");
  EXPECT_EQ(run_.read_record().exit, 2);
}

TEST_F(Launcher, ACrashIsReportedWithTheEndOfTheLog) {
  const auto result = run("echo 'I am doomed' > $2/logs/rank_0.log; kill -SEGV $$");
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 139);
  EXPECT_EQ(result.message,
            "rank 0 ended by signal 11 (SIGSEGV); last lines of its log:\n"
            "  I am doomed");
}

TEST_F(Launcher, TheFirstSignalIsPassedOnAndTheWorkerStopsCleanly) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    std::filesystem::remove(notes_);
    const auto status = std::to_string(128 + number);
    const auto result = run(
        std::string(kCount) + "trap 'got x; exit " + status +
            "' INT TERM HUP\ncat $never & echo ready >> $notes; while :; do wait; done",
        when_ready({number}));
    EXPECT_EQ(result.state, RunStatus::stopped) << number;
    EXPECT_EQ(result.exit, 128 + number);
    EXPECT_THAT(notes(), ElementsAre("ready", "got 1 x"));
    EXPECT_FALSE(result.ends[0].killed);
    EXPECT_EQ(run_.read_record().state, RunStatus::stopped);
    EXPECT_EQ(run_.read_record().exit, 128 + number);
  }
  EXPECT_THAT(said_[0], HasSubstr("stopping after this step (SIGINT)"));
}

TEST_F(Launcher, TheRecordSaysStoppingUntilItHasStopped) {
  const auto result =
      run("trap 'echo got >> $notes; until [ -e $notes.go ]; do :; done; exit "
          "130' INT\n"
          "cat $never & echo ready >> $notes; while :; do wait; done",
          [this] {
            EXPECT_TRUE(noted("ready"));
            ::kill(::getpid(), SIGINT);
            EXPECT_TRUE(test::eventually(
                [&] { return run_.read_record().state == RunStatus::stopping; }));
            test::write_file(notes_.string() + ".go", "");
          });
  EXPECT_EQ(result.state, RunStatus::stopped);
}

TEST_F(Launcher, ASecondCtrlCKillsAtOnce) {
  clock_ = &moved_;
  const auto result =
      run(std::string(kCount) + "trap 'got INT' INT\necho ready >> $notes\n" + kWait,
          [this] {
            ASSERT_TRUE(noted("ready"));
            ::kill(::getpid(), SIGINT);
            ASSERT_TRUE(noted("got 1"));
            moved_.advance(std::chrono::milliseconds(300));
            ::kill(::getpid(), SIGINT);
          });
  EXPECT_EQ(result.state, RunStatus::stopped);
  EXPECT_EQ(result.exit, 130);
  EXPECT_TRUE(result.ends[0].killed);
  EXPECT_EQ(result.ends[0].end.signal, SIGKILL);
  EXPECT_THAT(notes(), ElementsAre("ready", "got 1 INT"));  // the second: not passed on
  EXPECT_THAT(said_,
              ElementsAre("stopping after this step (SIGINT); a second one quits "
                          "at once",
                          "quitting at once (second SIGINT)"));
}

// What a terminal and timeout(1) do together, and what schedulers do by themselves. The
// user signal behind them shows that they were taken and changed nothing.
TEST_F(Launcher, AnEchoOfCtrlCAndARepeatedSigtermDoNotKill) {
  for (const int number : {SIGINT, SIGTERM}) {
    std::filesystem::remove(notes_);
    clock_ = &moved_;
    const auto result =
        run(std::string(kCount) +
                "trap 'got stop' INT TERM; trap 'got USR1; exit 75' USR1\n" +
                "echo ready >> $notes\n" + kWait,
            [this, number] {
              ASSERT_TRUE(noted("ready"));
              ::kill(::getpid(), number);
              ASSERT_TRUE(noted("got 1"));
              moved_.advance(std::chrono::milliseconds(number == SIGINT ? 299 : 5'000));
              ::kill(::getpid(), number);
              ASSERT_TRUE(taken(number));
              ::kill(::getpid(), SIGUSR1);
            });
    EXPECT_EQ(result.state, RunStatus::stopped) << number;
    EXPECT_EQ(result.exit, 75) << number;
    EXPECT_FALSE(result.ends[0].killed) << number;
    EXPECT_THAT(notes(), ElementsAre("ready", "got 1 stop", "got 2 USR1")) << number;
  }
}

TEST_F(Launcher, AHangUpIsNotASecondSignal) {
  const auto result =
      run(std::string(kCount) + "trap 'got HUP' HUP; trap 'got TERM; exit 143' TERM\n" +
              "echo ready >> $notes\n" + kWait,
          when_ready({SIGHUP, SIGTERM}));
  EXPECT_EQ(result.state, RunStatus::stopped);
  EXPECT_EQ(result.exit, 143);
  EXPECT_FALSE(result.ends[0].killed);
  EXPECT_THAT(notes(), ElementsAre("ready", "got 1 HUP", "got 2 TERM"));
}

TEST_F(Launcher, UserSignalsAreAlwaysPassedOn) {
  const auto result = run(std::string(kCount) +
                              "trap 'got USR2' USR2; trap 'got USR1; exit 75' USR1\n" +
                              "echo ready >> $notes\n" + kWait,
                          when_ready({SIGUSR2, SIGUSR2, SIGUSR1}));
  EXPECT_EQ(result.state, RunStatus::stopped);
  EXPECT_EQ(result.exit, 75);
  EXPECT_THAT(notes(), ElementsAre("ready", "got 1 USR2", "got 2 USR2", "got 3 USR1"));
}

TEST_F(Launcher, AWorkerThatIgnoresTheStopIsKilledAfterTheGracePeriod) {
  const auto result = run("trap '' TERM; echo ready >> $notes; exec cat $never",
                          when_ready({SIGTERM}), std::chrono::milliseconds(30));
  EXPECT_EQ(result.state, RunStatus::stopped);
  EXPECT_EQ(result.exit, 143);
  EXPECT_TRUE(result.ends[0].killed);
  ASSERT_EQ(said_.size(), 2U);
  EXPECT_EQ(said_[1], "rank 0 did not stop within 30ms; killed");
}

TEST_F(Launcher, NothingThatTheWorkerStartedOutlivesIt) {
  const auto result = run("cat $never & echo $! >> $notes; exit 0");
  EXPECT_EQ(result.state, RunStatus::done);
  EXPECT_TRUE(test::eventually([&] {
    const auto stat = test::read_file("/proc/" + notes().front() + "/stat");
    return stat.empty() || stat.find(") Z ") != std::string::npos;
  }));
}

TEST_F(Launcher, TheWorkerHasAProcessGroupOfItsOwn) {
  run("ps -o pgid= -p $$ | tr -d ' ' >> $notes; echo $$ >> $notes");
  const auto lines = notes();
  ASSERT_EQ(lines.size(), 2U);
  EXPECT_EQ(lines[0], lines[1]);
}

TEST_F(Launcher, AMissingWorkerIsAHardwareFaultAndTheRecordSaysSo) {
  Signals signals;
  const auto text = test::error_text(Fault::hardware, [&] {
    launcher::run_job(run_, one_rank({"/no/such/lockstep_worker"}), signals);
  });
  EXPECT_THAT(text, HasSubstr("'/no/such/lockstep_worker' does not exist"));
  EXPECT_EQ(run_.read_record().state, RunStatus::failed);
  EXPECT_EQ(run_.read_record().exit, 3);
}

TEST_F(Launcher, AWorkerThatCanNotBeStartedIsAnError) {
  const auto program = parent_.path() / "not_executable";
  test::write_file(program, "");
  Signals signals;
  test::error_text(Fault::io, [&] {
    launcher::run_job(run_, one_rank({program.string()}), signals);
  });
  EXPECT_EQ(run_.read_record().state, RunStatus::failed);
}

TEST_F(Launcher, ARecordThatCanNotBeWrittenDoesNotLoseTheResult) {
  const auto result = run("rm $2/run.json; exit 0");
  EXPECT_EQ(result.state, RunStatus::done);
  EXPECT_EQ(result.exit, 0);
  EXPECT_THAT(result.message, HasSubstr("run.json"));
}

TEST(Signals, WhatWasIgnoredStaysIgnored) {
  const auto before = ::signal(SIGHUP, SIG_IGN);
  {
    Signals signals;
    ::raise(SIGHUP);
    EXPECT_EQ(signals.take(), std::nullopt);
    sigset_t blocked;
    ::sigprocmask(SIG_SETMASK, nullptr, &blocked);
    EXPECT_EQ(::sigismember(&blocked, SIGHUP), 0);
    EXPECT_EQ(::sigismember(&blocked, SIGTERM), 1);
  }
  ::signal(SIGHUP, before);
}

TEST(Signals, AreDataWhileItLivesAndOrdinaryAfterwards) {
  sigset_t before;
  ::sigprocmask(SIG_SETMASK, nullptr, &before);
  {
    Signals signals;
    EXPECT_EQ(signals.take(), std::nullopt);
    ::raise(SIGUSR1);
    EXPECT_EQ(signals.take(), SIGUSR1);
    ::raise(SIGTERM);  // nobody takes it: it must not kill us below
  }
  sigset_t after;
  ::sigprocmask(SIG_SETMASK, nullptr, &after);
  EXPECT_EQ(::sigismember(&after, SIGTERM), ::sigismember(&before, SIGTERM));
  EXPECT_EQ(process::signal_name(SIGTERM), "SIGTERM");
  EXPECT_EQ(process::signal_name(999), "signal 999");
}

}  // namespace
}  // namespace lockstep
