// Every way to die, with real processes. JobRig::run checks each time that nobody is
// left when run_job() returns and that run.json says what it says.
#include <algorithm>
#include <functional>
#include <future>
#include <thread>

#include <pty.h>
#include <sys/ptrace.h>
#include <sys/wait.h>

#include "lockstep/base/process.h"
#include "tests/launcher/job_rig.h"

namespace lockstep {
namespace {

using run::RunStatus;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class Death : public test::JobRig {
 protected:
  // Two ranks that have left a child outside of their group, rank 0 with the port; then
  // rank 1 does `last`, and rank 0 waits until it is told.
  std::vector<std::string> then(std::vector<std::string> last) {
    std::vector<std::string> words{"env=MASTER_PORT", "r0.listen",  "child",
                                   "pid=rank",        "note=ready", "r0.hang",
                                   "await=.go"};
    words.insert(words.end(), last.begin(), last.end());
    return words;
  }

  launcher::JobResult dies(const std::vector<std::string>& last) {
    const auto result = run(job_of(2, then(last)), [this] {
      EXPECT_TRUE(noted_by_all("ready", 2));
      go(".go");
    });
    EXPECT_EQ(result.state, RunStatus::failed);
    expect_nothing_left();
    EXPECT_EQ(result.ends[0].end.signal, SIGTERM);
    EXPECT_TRUE(result.ends[0].told);
    EXPECT_THAT(result.message,
                AllOf(StartsWith(str("rank 1 (pid ", result.ends[1].pid, " on ")),
                      HasSubstr(str("\nrank 0 (pid ", result.ends[0].pid,
                                    ") got SIGTERM, signal 15 (SIGTERM)"))));
    const auto failures = events("failure");
    EXPECT_EQ(failures.size(), 1U);
    if (!failures.empty()) {
      EXPECT_EQ(value(failures[0], "rank"), "1");
      EXPECT_THAT(result.message, StartsWith(value(failures[0], "message")));
    }
    return result;
  }

  void expect_nothing_left() const {
    for (const auto& line : text::split(test::read_file(notes_), '\n')) {
      const auto words = text::split(line, ' ');
      if (words[0] != "child" && words[0] != "rank") continue;
      const auto pid = static_cast<pid_t>(*text::to_integer(words[1]));
      // One that was killed may need the CPU once more to end.
      EXPECT_TRUE(test::eventually([&] { return is_gone(pid); })) << line;
    }
    const auto port = text::to_integer(found("MASTER_PORT"));
    ASSERT_TRUE(port);
    EXPECT_EQ(launcher::HeldPort::take(static_cast<int>(*port)).port(), *port);
  }
};

// A process that does not die of SIGKILL, as one that waits inside a driver: a tracer
// holds it at its exit. The thread that has made it has to live as long.
class Unkillable {
 public:
  explicit Unkillable(pid_t pid) : pid_(pid) {
    made_ = ::ptrace(PTRACE_SEIZE, pid, nullptr, PTRACE_O_TRACEEXIT) == 0;
  }
  // It ends now.
  ~Unkillable() {
    if (!made_) return;
    ::waitpid(pid_, nullptr, __WALL);
    ::ptrace(PTRACE_DETACH, pid_, nullptr, nullptr);
  }
  Unkillable(const Unkillable&) = delete;
  Unkillable& operator=(const Unkillable&) = delete;
  bool made() const noexcept { return made_; }

 private:
  const pid_t pid_;
  bool made_ = false;
};

class Undying : public test::JobRig {
 protected:
  // Runs a job whose rank 1 notes its pid and can not be killed; then `act`.
  std::optional<launcher::JobResult> run_undying(launcher::Job job,
                                                 const std::function<void()>& act) {
    job.grace = std::chrono::milliseconds(100);
    job.clock = clock_;
    launcher::Signals signals;
    std::promise<bool> held;
    std::promise<void> over;
    std::jthread holder([&] {
      noted("me ");
      const Unkillable rank(pid_noted("me"));
      held.set_value(rank.made());
      if (rank.made()) act();
      over.get_future().wait();
    });
    std::optional<launcher::JobResult> result;
    auto running = std::async(std::launch::async,
                              [&] { return launcher::run_job(run_, job, signals); });
    const bool made = held.get_future().get();
    if (!made) ::kill(::getpid(), SIGTERM);
    result = running.get();
    over.set_value();
    holder.join();
    if (!made) return std::nullopt;
    return result;
  }
};

TEST_F(Undying, ARankThatCanNotBeKilledIsLeftAndSaid) {
  const auto result = run_undying(job_of(2, {"r1.pid=me", "ignore=15", "hang"}),
                                  [] { ::kill(::getpid(), SIGTERM); });
  if (!result) GTEST_SKIP() << "no ptrace here";
  EXPECT_EQ(result->state, RunStatus::failed);
  EXPECT_EQ(run_.read_record().state, RunStatus::failed);
  EXPECT_THAT(result->message, AllOf(StartsWith("rank 1 (pid "),
                                     HasSubstr(") cannot be killed (state ")));
  EXPECT_THAT(text::join(said_, "\n"), HasSubstr("it is left behind"));
}

TEST_F(Undying, TwoInterruptsEndTheLauncherAllTheSame) {
  const auto result = run_undying(job_of(2, {"r1.pid=me", "ignore=2", "hang"}), [] {
    ::kill(::getpid(), SIGINT);
    std::this_thread::sleep_for(std::chrono::milliseconds(400));  // no echo of it
    ::kill(::getpid(), SIGINT);
  });
  if (!result) GTEST_SKIP() << "no ptrace here";
  EXPECT_EQ(result->state, RunStatus::failed);
  EXPECT_THAT(result->message, HasSubstr("cannot be killed"));
}

TEST_F(Death, ARankThatExitsWithAStatus) {
  const auto result = dies({"say=I give up", "exit=9"});
  EXPECT_THAT(result.message, HasSubstr("ended with exit status 9; last lines of its "
                                        "log:\n  I give up\nrank 0"));
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(said_, ElementsAre("rank 1 has failed; the other ranks get SIGTERM"));
}

TEST_F(Death, ARankThatThrows) {
  const auto result = dies({"throw=no more data"});
  EXPECT_THAT(result.message, HasSubstr("ended by signal 6 (SIGABRT)"));
  EXPECT_THAT(result.message, HasSubstr("what():  no more data\n"));
  EXPECT_EQ(result.exit, 134);
}

TEST_F(Death, ARankThatCrashes) {
  const auto result = dies({"die=11"});
  EXPECT_THAT(result.message, HasSubstr("ended by signal 11 (SIGSEGV)"));
  EXPECT_EQ(result.exit, 139);
}

TEST_F(Death, ARankThatIsKilled) {
  const auto result = dies({"die=9"});
  EXPECT_THAT(result.message,
              HasSubstr("ended by signal 9 (SIGKILL), often the kernel's"));
  EXPECT_EQ(result.exit, 137);
}

TEST_F(Death, ARankThatLeavesAnErrorAsPyTorchDoes) {
  const auto result = dies({"torch_error=RuntimeError: boom", "exit=1"});
  EXPECT_THAT(result.message,
              HasSubstr("exit status 1 (internal): RuntimeError: boom"));
}

TEST_F(Death, ARankThatLeavesAnErrorAsWeDo) {
  const auto result = dies({"fault=io:data: no such set"});
  EXPECT_THAT(result.message, HasSubstr("exit status 4 (io): data: no such set"));
  EXPECT_EQ(result.exit, 3);
}

TEST_F(Death, RanksThatLosePeersAreNotTheFirst) {
  const auto result =
      run(job_of(3, {"ignore=15", "note=ready", "r1.await=.go", "r1.die=9",
                     "await=.lost", "fault=comm:comm: lost a peer"}),
          [this] {
            EXPECT_TRUE(noted_by_all("ready", 3));
            go(".lost");
            EXPECT_TRUE(test::eventually([this] {
              return std::filesystem::exists(run_.error(0)) &&
                     std::filesystem::exists(run_.error(2));
            }));
            go(".go");
          });
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 137);
  EXPECT_THAT(result.message, StartsWith("rank 1 "));
  EXPECT_THAT(result.message, HasSubstr("exit status 5: comm: lost a peer\nrank 2"));
}

// The peer sees it end before it can be waited for. Our signal is not why it ends,
// though it is the same one.
TEST_F(Death, ARankThatIsStillEndingIsBeforeThePeerThatLostIt) {
  const auto result = run(job_of(2, {"r0.pid=ending", "r0.end_main_thread",
                                     "await=.lost", "fault=comm:comm: lost a peer"}),
                          [this] {
                            EXPECT_TRUE(noted("ending "));
                            EXPECT_TRUE(test::eventually([this] {
                              return launcher::is_ending(pid_noted("ending"));
                            }));
                            go(".lost");
                          });
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 128 + SIGTERM);
  EXPECT_THAT(result.message, StartsWith(str("rank 0 (pid ", result.ends[0].pid)));
  EXPECT_FALSE(result.ends[0].told);
  EXPECT_THAT(result.message, HasSubstr("rank 1"));
}

TEST_F(Death, ARankThatDoesNotListenIsKilledAfterTheGracePeriod) {
  auto job =
      job_of(3, {"r1.ignore=15", "note=ready", "r0.await=.go", "r0.exit=3", "hang"});
  job.grace = std::chrono::seconds(1);
  const auto result = run(job, [this] {
    EXPECT_TRUE(noted_by_all("ready", 3));
    go(".go");
  });
  EXPECT_THAT(result.message, StartsWith("rank 0 "));
  EXPECT_THAT(result.message, HasSubstr(") got SIGTERM, did not exit, was killed\n"));
  EXPECT_TRUE(result.ends[1].killed);
  EXPECT_FALSE(result.ends[2].killed);
  EXPECT_EQ(said_.back(), "rank 1 did not stop within 1s; killed");
}

TEST_F(Death, AnyProgramMayEndWellBeforeTheOthers) {
  const auto result =
      run(job_of(2, {"r1.child", "r1.pid=early", "r1.exit=0", "await=.go"}), [this] {
        EXPECT_TRUE(noted("early "));
        EXPECT_TRUE(test::eventually([this] { return is_gone(pid_noted("early")); }));
        go(".go");
      });
  EXPECT_EQ(result.state, RunStatus::done);
  EXPECT_TRUE(test::eventually([this] { return is_gone(pid_noted("child")); }));
}

// Its group is all that it is known by.
TEST_F(Death, AChildWithoutAnEnvironmentGoesWithItsRank) {
  auto job = job_of(1, {});
  job.command = {"/bin/sh", "-c",
                 "env -i sleep 1000 & echo \"child $!\" > $NOTES\n"
                 "until grep -q sleep /proc/$!/comm; do :; done; exit 0"};
  EXPECT_EQ(run(job).state, RunStatus::done);
  EXPECT_GT(pid_noted("child"), 0);
  EXPECT_TRUE(test::eventually([this] { return is_gone(pid_noted("child")); }));
}

TEST_F(Death, AWorkerThatEndsWellTooEarlyIsAFailureThatIsNamed) {
  auto job = worker_job(2, {"beat=3:training", "note=ready", "r0.answer=15", "r0.hang",
                            "await=.go", "exit=0"});
  const auto result = run(job, [this] {
    EXPECT_TRUE(noted_by_all("ready", 2));
    go(".go");
  });
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 1);
  EXPECT_THAT(result.message, StartsWith("rank 1 "));
  EXPECT_THAT(result.message,
              HasSubstr("ended with exit status 0 before it had finished\nrank 0"));
}

TEST_F(Death, WorkersThatHaveFinishedEndWellInAnyOrder) {
  const auto job = worker_job(2, {"beat=3:finished", "r0.await=.go"});
  const auto result = run(job, [this] {
    EXPECT_TRUE(test::eventually([this] { return !events("launched").empty(); }));
    go(".go");
  });
  EXPECT_EQ(result.state, RunStatus::done) << result.message;
}

TEST_F(Death, ASignalToTheLauncherStopsAllRanks) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    std::filesystem::remove(notes_);
    const auto words = then({"hang"});
    go(".go");
    const auto result = run(job_of(3, words), [this, number] {
      EXPECT_TRUE(noted_by_all("ready", 3));
      ::kill(::getpid(), number);
    });
    EXPECT_EQ(result.state, RunStatus::stopped) << number;
    EXPECT_EQ(result.exit, 128 + number);
    EXPECT_EQ(result.message, "stopped by " + process::signal_name(number));
    expect_nothing_left();
    EXPECT_EQ(value(events("stopping").back(), "signal"), process::signal_name(number));
  }
}

TEST_F(Death, ACrashInAStopIsAFailure) {
  const auto result =
      run(job_of(2, {"r0.answer=15", "r1.crash_on=15", "note=ready", "hang"}), [this] {
        EXPECT_TRUE(noted_by_all("ready", 2));
        ::kill(::getpid(), SIGTERM);
      });
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_THAT(result.message, HasSubstr("ended by signal 11"));
}

// The launcher as a process of its own.
class LauncherDeath : public Death {
 protected:
  process::ProcessOptions launcher(const std::vector<std::string>& words) {
    process::ProcessOptions command{
        .arguments = {program().string(), "launch", own_run().string(), "2"},
        .environment = {{"NOTES", notes_.string()}},
        .directory = {}};
    command.arguments.insert(command.arguments.end(), words.begin(), words.end());
    return command;
  }
  test::Path own_run() const { return parent_.path() / "own"; }

  // Launcher, guard, ranks and their children: all have NOTES in their environment.
  bool all_are_gone() const {
    return test::eventually(
        [this] { return launcher::processes_with(notes_.string()).empty(); });
  }
};

TEST_F(LauncherDeath, KilledItTakesRanksAndTheirChildrenWithIt) {
  auto launched = process::Child::start(launcher(then({"hang"})));
  ASSERT_TRUE(noted_by_all("ready", 2));
  // Launcher, guard, two ranks and what they left.
  EXPECT_TRUE(test::eventually(
      [this] { return launcher::processes_with(notes_.string()).size() == 6; }));
  ::kill(launched.pid(), SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_EQ(launched.wait().signal, SIGKILL);
  EXPECT_TRUE(all_are_gone());
  EXPECT_LT(std::chrono::steady_clock::now() - killed, test::kPatience);
  expect_nothing_left();
  const auto record = run::RunDirectory::open(own_run()).read_record();
  EXPECT_EQ(record.state, RunStatus::running);
  EXPECT_FALSE(run::may_be_alive(record));
}

TEST_F(LauncherDeath, AskedToStopItEndsWithThatStatusAndNothingIsLeft) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) {
    std::filesystem::remove(notes_);
    std::filesystem::remove_all(own_run());
    auto launched = process::Child::start(launcher(then({"hang"})));
    ASSERT_TRUE(noted_by_all("ready", 2));
    launched.signal(number);
    const auto end = launched.wait_for(test::kPatience);
    ASSERT_TRUE(end);
    EXPECT_EQ(end->exit_status, 128 + number);
    EXPECT_TRUE(launcher::processes_with(notes_.string()).empty());
    expect_nothing_left();
    EXPECT_EQ(run::RunDirectory::open(own_run()).read_record().state,
              RunStatus::stopped);
  }
}

// Ranks that do not answer the hang-up are killed after the 500 ms of this launcher.
TEST_F(LauncherDeath, ItsTerminalClosesAndNothingIsLeft) {
  const auto command = launcher(then({"hang"}));
  int master = -1;
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, nullptr);
  if (pid == 0) {
    ::setenv("NOTES", notes_.c_str(), 1);
    std::vector<char*> words;
    for (const auto& word : command.arguments) {
      words.push_back(const_cast<char*>(word.c_str()));
    }
    words.push_back(nullptr);
    ::execv(words[0], words.data());
    ::_exit(127);
  }
  files::Descriptor terminal(master);
  ASSERT_TRUE(noted_by_all("ready", 2));
  terminal.reset();
  int status = 0;
  ASSERT_TRUE(
      test::eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGHUP);
  EXPECT_TRUE(launcher::processes_with(notes_.string()).empty());
  expect_nothing_left();
  EXPECT_EQ(run::RunDirectory::open(own_run()).read_record().message,
            "stopped by SIGHUP");
}

// The outer mark is in the inner job's environment, too.
TEST_F(LauncherDeath, AJobInsideAJobGoesWithIt) {
  auto inner = launcher(then({"hang"})).arguments;
  auto job = job_of(1, {});
  job.command = inner;
  const auto result = run(job, [this] {
    EXPECT_TRUE(noted_by_all("ready", 2));
    auto all = launcher::processes_with(notes_.string());
    // The guard before its launcher, so that it can not help.
    std::sort(all.begin(), all.end(), std::greater<>());
    for (const pid_t pid : all) {
      const auto text = test::read_file("/proc/" + std::to_string(pid) + "/cmdline");
      if (text.find(std::string("launch") + '\0') != std::string::npos) {
        ::kill(pid, SIGKILL);
      }
    }
  });
  EXPECT_EQ(result.ends[0].end.signal, SIGKILL);
  expect_nothing_left();
}

}  // namespace
}  // namespace lockstep
