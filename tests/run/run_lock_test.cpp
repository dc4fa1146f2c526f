#include "lockstep/run/run_lock.h"

#include <atomic>
#include <thread>

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/run/run_rig.h"

namespace lockstep {
namespace {

using run::LockHolder;
using run::LockOptions;
using run::RunLock;
using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

// A machine that shares the directory of the run with this one.
LockHolder on_another_machine() {
  return {.host = "nodeA", .boot = "another-kernel", .pid = 4711, .process_start = 1};
}

class Lock : public ::testing::Test {
 protected:
  const run::Path& path() const { return rig_.run.path(); }
  run::Path file() const { return path() / "lock"; }

  std::string refusal(const LockOptions& options = {}) const {
    return test::error_text(Fault::config, [&] { RunLock::take(path(), options); });
  }

  static LockOptions of_another_machine() {
    LockOptions options;
    options.self = on_another_machine();
    return options;
  }

  // What a process leaves that was killed: its words, and no flock.
  void leave_lock(const LockHolder& holder, milliseconds age) const {
    test::write_file(file(),
                     str(R"({"host":")", holder.host, R"(","boot":")", holder.boot,
                         R"(","pid":)", holder.pid, R"(,"process_start":)",
                         holder.process_start, R"(,"renewed":3})"));
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const timespec then{.tv_sec = now.tv_sec - age.count() / 1000,
                        .tv_nsec = now.tv_nsec};
    const timespec times[2] = {then, then};
    ASSERT_EQ(::utimensat(AT_FDCWD, file().c_str(), times, 0), 0);
  }

  test::RunRig rig_;
};

TEST_F(Lock, IsHeldByOneAtATime) {
  {
    const auto lock = RunLock::take(path());
    EXPECT_THAT(refusal(), AllOf(HasSubstr(path().string()),
                                 HasSubstr("is still running (process " +
                                           std::to_string(::getpid()) + " on ")));
  }
  EXPECT_FALSE(std::filesystem::exists(file()));
  const auto again = RunLock::take(path());
  EXPECT_EQ(again.lost_to(), "");
}

TEST_F(Lock, OfManyThatAskTogetherOneGetsIt) {
  constexpr int kProcesses = 8;
  for (int round = 0; round < 20; ++round) {
    int go[2], end[2];
    ASSERT_EQ(::pipe(go) | ::pipe(end), 0);
    std::vector<pid_t> children;
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t pid = ::fork();
      if (pid == 0) {
        ::close(go[1]);
        ::close(end[1]);
        char byte = 0;
        if (::read(go[0], &byte, 1) != 0) ::_exit(9);
        try {
          const auto lock = RunLock::take(path());
          // Until all have asked.
          if (::read(end[0], &byte, 1) != 0) ::_exit(9);
          ::_exit(0);
        } catch (const Error&) {
          ::_exit(1);
        }
      }
      children.push_back(pid);
    }
    ::close(go[1]);  // all at once
    int refused = 0, status = 0;
    while (refused < kProcesses - 1) {
      if (::waitpid(-1, &status, 0) < 0) break;
      EXPECT_EQ(WEXITSTATUS(status), 1);
      ++refused;
    }
    ::close(end[1]);
    ::waitpid(-1, &status, 0);
    EXPECT_EQ(WEXITSTATUS(status), 0);
    for (const int fd : {go[0], end[0]}) ::close(fd);
  }
}

TEST_F(Lock, OfADeadProcessOfThisMachineIsFree) {
  const pid_t pid = ::fork();
  if (pid == 0) {
    const auto lock = RunLock::take(path());
    ::_exit(0);  // without giving it back
  }
  int status = 0;
  ::waitpid(pid, &status, 0);
  EXPECT_TRUE(std::filesystem::exists(file()));
  EXPECT_EQ(RunLock::take(path()).lost_to(), "");
}

TEST_F(Lock, GoesToNobodyWhileACopyOfItsDescriptorIsOpen) {
  auto lock = std::make_optional(RunLock::take(path()));
  const files::Descriptor copy(::dup(lock->descriptor()));
  const pid_t pid = ::fork();  // a guard that outlives its launcher
  if (pid == 0) {
    ::pause();
    ::_exit(0);
  }
  EXPECT_THAT(refusal(), HasSubstr("is still running"));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

TEST_F(Lock, WordsThatAreTornOrForeignAreNoHolder) {
  for (const auto* text : {"", "{", "[]", "{\"host\": 3}", "hello"}) {
    test::write_file(file(), text);
    EXPECT_EQ(RunLock::take(path()).lost_to(), "") << text;
  }
}

TEST_F(Lock, OfAnotherMachineWhoseLeaseHasEndedIsFree) {
  leave_lock(on_another_machine(), milliseconds(61'000));
  EXPECT_EQ(RunLock::take(path()).lost_to(), "");
}

TEST_F(Lock, OfAnotherMachineIsWaitedForAndThenTaken) {
  leave_lock(on_another_machine(), milliseconds(55'000));
  LockOptions options;
  std::vector<std::string> said;
  options.say = [&](std::string_view text) { said.emplace_back(text); };
  const auto lock = RunLock::take(path(), options);
  ASSERT_EQ(said.size(), 1);
  EXPECT_THAT(said[0], AllOf(HasSubstr("process 4711 on nodeA's; waiting up to "),
                             HasSubstr("--take-over does not wait")));
}

TEST_F(Lock, OfAnotherMachineThatIsRenewedIsRefused) {
  auto theirs = of_another_machine();
  theirs.renew_every = milliseconds(5);
  const auto lock = RunLock::take(path(), theirs);
  const auto text = refusal();
  EXPECT_THAT(text, AllOf(HasSubstr("process 4711 on nodeA"),
                          HasSubstr("--take-over takes the run from that machine")));
  EXPECT_EQ(lock.lost_to(), "");
}

// A signal, for instance, while a lease may have a minute left.
TEST_F(Lock, OneWhoWaitsForALeaseEndsWhenAsked) {
  leave_lock(on_another_machine(), milliseconds(1'000));
  LockOptions options;
  int asked = 0;
  options.interrupted = [&] { return ++asked > 2; };
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_THAT(test::error_text(Fault::comm, [&] { RunLock::take(path(), options); }),
              HasSubstr("asked to end while waiting for the lock"));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(5));
  EXPECT_THAT(test::read_file(file()), HasSubstr("nodeA"));
  options.take_over = true;  // then it waits for the one that has lost it
  asked = 0;
  EXPECT_THAT(test::error_text(Fault::comm, [&] { RunLock::take(path(), options); }),
              HasSubstr("asked to end"));
}

TEST_F(Lock, ThatIsTakenOverIsLostByItsHolder) {
  auto theirs = of_another_machine();
  theirs.renew_every = milliseconds(5);
  std::atomic<bool> told = false;
  theirs.on_lost = [&](const std::string&) { told = true; };
  auto lost = std::make_optional(RunLock::take(path(), theirs));
  LockOptions options;
  options.take_over = true;
  options.renew_every = milliseconds(5);
  const auto lock = RunLock::take(path(), options);
  EXPECT_TRUE(test::eventually([&] { return told.load(); }));
  EXPECT_EQ(lost->lost_to(), run::this_process().text());
  // What it gives back is not its own any more.
  lost.reset();
  EXPECT_TRUE(std::filesystem::exists(file()));
  EXPECT_EQ(lock.lost_to(), "");
}

TEST_F(Lock, OfThisMachineIsNotTakenOver) {
  const auto lock = RunLock::take(path());
  LockOptions options;
  options.take_over = true;
  EXPECT_THAT(refusal(options), HasSubstr("is still running"));
}

TEST_F(Lock, OfTwoThatReplaceAStaleOneOneGetsIt) {
  for (int round = 0; round < 20; ++round) {
    leave_lock(on_another_machine(), milliseconds(61'000));
    std::atomic<int> got = 0;
    std::vector<std::optional<RunLock>> locks(4);
    {
      std::vector<std::jthread> threads;
      for (auto& lock : locks) {
        threads.emplace_back([&] {
          try {
            lock.emplace(RunLock::take(path()));
            ++got;
          } catch (const Error&) {
          }
        });
      }
    }
    EXPECT_EQ(got, 1) << round;
  }
}

TEST_F(Lock, AClaimThatItsMakerLeftIsRemoved) {
  leave_lock(on_another_machine(), milliseconds(61'000));
  test::write_file(path() / ".lock.claim", "");
  const timespec old{.tv_sec = 1'000'000'000, .tv_nsec = 0};
  const timespec times[2] = {old, old};
  ASSERT_EQ(::utimensat(AT_FDCWD, (path() / ".lock.claim").c_str(), times, 0), 0);
  EXPECT_EQ(RunLock::take(path()).lost_to(), "");
  EXPECT_FALSE(std::filesystem::exists(path() / ".lock.claim"));
}

TEST_F(Lock, SaysWhetherARunOfAnotherMachineLives) {
  run::RunRecord record;
  record.host = "nodeA";
  record.pid = 4711;
  record.state = run::RunStatus::running;
  EXPECT_TRUE(run::may_be_alive(rig_.run, record));  // nothing says otherwise
  leave_lock(on_another_machine(), milliseconds(1'000));
  EXPECT_TRUE(run::may_be_alive(rig_.run, record));
  leave_lock(on_another_machine(), std::chrono::hours(1));
  EXPECT_FALSE(run::may_be_alive(rig_.run, record));
}

// A container's other name for this very machine: its processes are not to be seen, but
// its lock is.
TEST_F(Lock, SaysWhetherARunOfThisMachineUnderAnotherNameLives) {
  run::RunRecord record;
  record.host = "pod-1";
  record.pid = 4711;
  record.state = run::RunStatus::running;
  LockOptions options;
  options.self.host = record.host;
  options.self.pid = record.pid;
  {
    const auto lock = RunLock::take(path(), options);
    EXPECT_TRUE(run::may_be_alive(rig_.run, record));
    EXPECT_THAT(refusal(), HasSubstr("process 4711 on pod-1"));  // asking took nothing
  }
  leave_lock(options.self, milliseconds(1'000));
  EXPECT_FALSE(run::may_be_alive(rig_.run, record));
  EXPECT_EQ(RunLock::take(path()).lost_to(), "");
}

TEST_F(Lock, OneWhoOnlyAsksIsNotInTheWay) {
  leave_lock(run::this_process(), milliseconds(1'000));
  const files::Descriptor reader(::open(file().c_str(), O_RDONLY | O_CLOEXEC));
  // Who asks holds it for a moment; on a busy machine the thread here may be later.
  EXPECT_TRUE(test::eventually([&] {
    EXPECT_EQ(::flock(reader.get(), LOCK_SH | LOCK_NB), 0);
    std::jthread done([&] {
      std::this_thread::sleep_for(milliseconds(5));
      ::flock(reader.get(), LOCK_UN);
    });
    try {
      return RunLock::take(path()).lost_to().empty();
    } catch (const Error&) {
      return false;
    }
  }));
}

TEST_F(Lock, ThatIsNoFileIsOneLine) {
  run::RunRecord record = run::record_of_this_process();
  const auto expect_line = [&] {
    EXPECT_THAT(test::error_text(Fault::io, [&] { RunLock::take(path()); }),
                HasSubstr("lock' is not a regular file; remove it"));
    EXPECT_TRUE(run::may_be_alive(rig_.run, record));  // and does not wait
  };
  ASSERT_EQ(::mkfifo(file().c_str(), 0600), 0);
  expect_line();
  std::filesystem::remove(file());
  std::filesystem::create_directory(file());
  expect_line();
}

TEST_F(Lock, OfANewRunIsHeldBeforeOthersSeeIt) {
  std::optional<RunLock> lock;
  const auto run = run::RunDirectory::create(
      path().parent_path(),
      {.name = "new", .record = {}, .config_yaml = "", .plan_json = "", .lock = &lock});
  ASSERT_TRUE(lock);
  EXPECT_THAT(test::error_text(Fault::config, [&] { RunLock::take(run.path()); }),
              HasSubstr("is still running"));
  lock.reset();
  EXPECT_FALSE(std::filesystem::exists(run.path() / "lock"));
}

}  // namespace
}  // namespace lockstep
