#include "lockstep/base/process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

process::ProcessOptions shell(const std::string& script) {
  return {.arguments = {"/bin/sh", "-c", script}, .environment = {}, .directory = {}};
}

std::string read_line(files::Descriptor& from) {
  std::string line;
  char c = 0;
  while (::read(from.get(), &c, 1) == 1 && c != '\n') line += c;
  return line;
}

// Gone, or dead and not yet collected by its parent.
bool has_ended(pid_t pid) {
  const auto stat = test::read_file("/proc/" + std::to_string(pid) + "/stat");
  return stat.empty() || stat.find(") Z ") != std::string::npos;
}

TEST(Process, RunGathersBothStreamsAndTheExitStatus) {
  const auto output =
      process::run(shell("echo result; echo message >&2; exit 3"), test::kPatience);
  EXPECT_EQ(output.out, "result\n");
  EXPECT_EQ(output.err, "message\n");
  EXPECT_EQ(output.end.exit_status, 3);
  EXPECT_FALSE(output.end.ok());
}

TEST(Process, RunTakesMoreThanAPipeHolds) {
  const auto output = process::run(
      shell("head -c 300000 /dev/zero; head -c 300000 /dev/zero >&2"), test::kPatience);
  EXPECT_EQ(output.out.size(), 300000U);
  EXPECT_EQ(output.err.size(), 300000U);
}

TEST(Process, RunKillsWhatOutlivesItsLimit) {
  const auto output = process::run(shell("echo before; exec cat /dev/zero > /dev/null"),
                                   std::chrono::milliseconds(50));
  EXPECT_EQ(output.end.signal, SIGKILL);
}

TEST(Process, AMissingProgramIsAnError) {
  EXPECT_THAT(
      test::error_text(Fault::io,
                       [] {
                         process::Child::start({.arguments = {"/no/such/program"},
                                                .environment = {},
                                                .directory = {}});
                       }),
      HasSubstr("cannot start '/no/such/program': No such file"));
}

TEST(Process, AMissingWorkingDirectoryIsAnError) {
  auto command = shell("true");
  command.directory = "/no/such/directory";
  test::error_text(Fault::io, [&] { process::Child::start(command); });
}

TEST(Process, EnvironmentIsAddedAndReplaced) {
  ASSERT_EQ(::setenv("LOCKSTEP_TEST_VARIABLE", "old", 1), 0);
  auto command = shell("echo $LOCKSTEP_TEST_VARIABLE $OTHER; test -n \"$PATH\"");
  command.environment = {{"LOCKSTEP_TEST_VARIABLE", "new"}, {"OTHER", "x y"}};
  const auto output = process::run(command, test::kPatience);
  ::unsetenv("LOCKSTEP_TEST_VARIABLE");
  EXPECT_EQ(output.out, "new x y\n");
  EXPECT_TRUE(output.end.ok());
}

TEST(Process, RunsInTheGivenDirectory) {
  auto command = shell("pwd");
  command.directory = "/usr";
  EXPECT_EQ(process::run(command, test::kPatience).out, "/usr\n");
}

TEST(Process, ASignalIsReportedWithItsName) {
  auto command = shell("kill -SEGV $$");
  auto child = process::Child::start(command);
  const auto end = child.wait();
  EXPECT_EQ(end.signal, SIGSEGV);
  EXPECT_EQ(end.shell_status(), 128 + SIGSEGV);
  EXPECT_EQ(process::describe(end), "signal 11 (SIGSEGV)");
  EXPECT_EQ(process::describe({.exit_status = 2}), "exit status 2");
}

TEST(Process, ASignalReachesTheWholeGroup) {
  auto command = shell("sh -c 'echo $$; exec sleep 1000' & wait");
  command.out = process::StreamMode::pipe;
  command.own_group = true;
  auto child = process::Child::start(command);
  const auto grandchild = text::to_integer(read_line(child.out()));
  ASSERT_TRUE(grandchild);
  EXPECT_EQ(::getpgid(child.pid()), child.pid());
  child.signal(SIGTERM);
  EXPECT_EQ(child.wait().signal, SIGTERM);
  EXPECT_TRUE(
      test::eventually([&] { return has_ended(static_cast<pid_t>(*grandchild)); }));
}

TEST(Process, PollAndWaitForDoNotBlockOnARunningChild) {
  auto child = process::Child::start(
      {.arguments = {"sleep", "1000"}, .environment = {}, .directory = {}});
  EXPECT_EQ(child.poll(), std::nullopt);
  EXPECT_EQ(child.wait_for(std::chrono::milliseconds(1)), std::nullopt);
  child.signal(SIGKILL);
  const auto end = child.wait_for(test::kPatience);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGKILL);
  EXPECT_TRUE(child.poll());  // and says so again
  child.signal(SIGKILL);      // a child that has ended is not an error
}

TEST(Process, TheDestructorLeavesNoProcessBehind) {
  pid_t pid = 0;
  {
    auto child = process::Child::start(
        {.arguments = {"sleep", "1000"}, .environment = {}, .directory = {}});
    pid = child.pid();
    EXPECT_EQ(::kill(pid, 0), 0);
  }
  EXPECT_NE(::kill(pid, 0), 0);
}

// The grandchild's number comes through a file, because the parent is killed without a
// chance to say anything.
TEST(Process, AChildThatIsLeftIsNeitherKilledNorWaitedFor) {
  pid_t pid = 0;
  {
    auto child = process::Child::start(shell("exec sleep 600"));
    pid = child.pid();
    child.leave();
  }
  EXPECT_EQ(::waitpid(pid, nullptr, WNOHANG), 0) << "it is alive";
  ::kill(pid, SIGKILL);
  EXPECT_EQ(::waitpid(pid, nullptr, 0), pid);
}

TEST(Process, AChildDiesWithItsParent) {
  const files::TemporaryDirectory directory;
  const auto path = directory.path() / "pid";
  const int status = test::in_child([&] {
    static auto child = process::Child::start(
        {.arguments = {"sleep", "1000"}, .environment = {}, .directory = {}});
    test::write_file(path, std::to_string(child.pid()));
    ::raise(SIGKILL);
    return 0;
  });
  EXPECT_EQ(status, -1);
  const auto grandchild = text::to_integer(test::read_file(path));
  ASSERT_TRUE(grandchild);
  EXPECT_TRUE(
      test::eventually([&] { return has_ended(static_cast<pid_t>(*grandchild)); }));
}

TEST(Process, TheChildStartsWithSignalsAsUsual) {
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  auto child = process::Child::start(
      {.arguments = {"sleep", "1000"}, .environment = {}, .directory = {}});
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
  child.signal(SIGTERM);
  const auto end = child.wait_for(test::kPatience);
  ASSERT_TRUE(end);
  EXPECT_EQ(end->signal, SIGTERM);
}

TEST(Process, DiscardedStreamsReachNobody) {
  ::testing::internal::CaptureStdout();
  auto command = shell("echo nobody");
  command.out = process::StreamMode::discard;
  EXPECT_TRUE(process::Child::start(command).wait().ok());
  EXPECT_EQ(::testing::internal::GetCapturedStdout(), "");
}

TEST(Process, AChildRunsOnTheCpusItIsGiven) {
  cpu_set_t ours;
  ASSERT_EQ(::sched_getaffinity(0, sizeof ours, &ours), 0);
  int last = CPU_SETSIZE - 1;
  while (!CPU_ISSET(last, &ours)) --last;
  auto command = shell("grep Cpus_allowed_list /proc/self/status");
  command.cpus = {last};
  EXPECT_EQ(process::run(command, test::kPatience).out,
            "Cpus_allowed_list:\t" + std::to_string(last) + "\n");
}

TEST(Process, CpusThatAreNotThereAreAnError) {
  auto command = shell("exit 0");
  command.cpus = {100'000};
  EXPECT_THAT(test::error_text(Fault::io, [&] { process::Child::start(command); }),
              HasSubstr("cannot start '/bin/sh' on the CPUs chosen for it: "));
}

}  // namespace
}  // namespace lockstep
