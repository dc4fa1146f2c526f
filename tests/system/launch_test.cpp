// `lockstep launch` of the real worker, whose ranks exchange collectives until
// something happens to them or to the launcher.
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>

#include "lockstep/run/run_directory.h"
#include "tests/system/ranks.h"

namespace lockstep {
namespace {

using testing::HasSubstr;

class LaunchedWorker : public testing::Test {
 protected:
  std::vector<std::string> command_line(const std::vector<std::string>& more,
                                        const std::string& seconds) const {
    const std::vector<std::string> options{"--nproc-per-node", "2", "--master-port",
                                           std::to_string(port_)};
    return test::launch_worker(test::joined(options, more),
                               {"--selftest", "--seconds", seconds});
  }

  // Two ranks that exchange collectives, seen to do so.
  std::unique_ptr<test::Job> start(const std::vector<std::string>& more = {},
                                   const std::string& seconds = "600") const {
    auto job = std::make_unique<test::Job>(command_line(more, seconds), limits());
    EXPECT_TRUE(job->exchanges(2)) << job->text();
    return job;
  }

  static std::vector<std::pair<std::string, std::string>> limits() {
    // The ranks notice before the launcher does.
    return {{"LOCKSTEP_COMM_TIMEOUT", "2s"},
            {"LOCKSTEP_COMM_JOIN_TIMEOUT", "20s"},
            {"LOCKSTEP_WATCH_STEP_FLOOR", "60s"}};
  }

  // Whatever happened: nothing is left.
  void expect_ended(test::Job& job, int status) const {
    const auto end = job.wait_for(test::kPatience);
    ASSERT_TRUE(end.has_value()) << job.text();
    EXPECT_EQ(end->shell_status(), status) << job.text();
    EXPECT_TRUE(job.is_gone()) << job.text();
    EXPECT_TRUE(test::eventually([&] { return test::is_free(port_); }));
  }

  files::TemporaryDirectory folder_;
  const int port_ = test::free_port();
};

TEST_F(LaunchedWorker, SignalsToTheLauncherEndAllRanks) {
  for (const int number : {SIGINT, SIGTERM}) {
    const auto job = start();
    ::kill(job->pid(), number);
    expect_ended(*job, 128 + number);
  }
}

TEST_F(LaunchedWorker, AKilledLauncherTakesItsRanksWithIt) {
  const auto job = start();
  ::kill(job->pid(), SIGKILL);
  expect_ended(*job, 128 + SIGKILL);
}

TEST_F(LaunchedWorker, AKilledRankIsNamedAndItsPeerTold) {
  const auto job = start({"--log-dir", folder_.path().string()});
  const auto victim = job->rank(1);
  ASSERT_NE(victim, 0);
  ::kill(victim, SIGKILL);
  expect_ended(*job, 128 + SIGKILL);
  EXPECT_THAT(job->text(), HasSubstr(str("rank 1 (pid ", victim, " on ")));
  EXPECT_THAT(job->text(), HasSubstr("\nrank 0 (pid "));
  const auto runs = run::list_runs(folder_.path()).runs;
  ASSERT_EQ(runs.size(), 1U);
  EXPECT_EQ(runs[0].record.state, run::RunStatus::failed);
  EXPECT_THAT(runs[0].record.message, HasSubstr("rank 1"));
}

TEST_F(LaunchedWorker, AStoppedRankIsNoticedByItsPeers) {
  const auto job = start({"--grace-period", "1"});
  ::kill(job->rank(1), SIGSTOP);
  const auto end = job->wait_for(test::kPatience);
  ASSERT_TRUE(end.has_value()) << job->text();
  EXPECT_NE(end->shell_status(), 0);
  EXPECT_THAT(job->text(), HasSubstr("comm: "));
  EXPECT_TRUE(job->is_gone()) << job->text();
}

TEST_F(LaunchedWorker, RanksMeetAgainAfterARestart) {
  const auto job = start({"--max-restarts", "1"}, "3");
  ::kill(job->rank(1), SIGKILL);
  expect_ended(*job, 0);
}

// What a program of others means by its status is its own business: it has failed.
TEST(LaunchedProgram, AnyStatusButZeroIsAFailureThatMayBeTriedAgain) {
  const files::TemporaryDirectory folder;
  const auto launch = [&](const std::string& script) {
    return test::run({test::binary("lockstep").string(), "launch", "--nproc-per-node",
                      "2", "--max-restarts", "1", "--", "bash", "-c", script},
                     {{"TMPDIR", folder.path().string()}});
  };
  for (const auto* status : {"2", "5", "6", "75", "143"}) {
    const auto mark = folder.path() / str("tried_", status);
    // Rank 1 fails once; rank 0 would go on for ever if it were not told.
    const auto output =
        launch(str("if [ $TORCHELASTIC_RESTART_COUNT = 1 ]; then exit 0; fi; "
                   "if [ $RANK = 1 ]; then touch ",
                   mark.string(), "; exit ", status, "; fi; exec sleep 600"));
    EXPECT_EQ(output.end.shell_status(), 0) << status << "\n" << output.err;
    EXPECT_TRUE(std::filesystem::exists(mark));
  }
}

// Two ranks may share a GPU when NCCL takes them for ranks of different machines.
TEST(LaunchedWorkerGpu, TwoRanksOfOneGpuAgreeOverNccl) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  const auto output =
      test::run({test::binary("lockstep").string(), "launch", "--nproc-per-node", "2",
                 "--", "bash", "-c",
                 "NCCL_HOSTID=$RANK exec " + test::worker() + " --selftest --cuda"});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("2 ranks agree over nccl"));
}

TEST(LaunchedWorkerGpu, WhereNcclIsNotUsableGlooTakesOverAndSaysWhy) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  // Two ranks on one GPU: NCCL refuses.
  const std::vector<std::string> command{test::binary("lockstep").string(),
                                         "launch",
                                         "--nproc-per-node",
                                         "2",
                                         "--",
                                         test::worker(),
                                         "--selftest",
                                         "--cuda"};
  const auto output = test::run(command, {{"CUDA_VISIBLE_DEVICES", "0"}});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_THAT(output.out, HasSubstr("nccl is not usable (rank "));
  EXPECT_THAT(output.out, HasSubstr("2 ranks agree over gloo"));
  const auto by_name = test::run(
      command, {{"CUDA_VISIBLE_DEVICES", "0"}, {"LOCKSTEP_COMM_BACKEND", "nccl"}});
  EXPECT_EQ(by_name.end.shell_status(), 3);
  EXPECT_THAT(by_name.err, HasSubstr("backend nccl was requested, but rank "));
}

// As when a terminal window is closed: SIGHUP, and nobody reads any more.
TEST_F(LaunchedWorker, AClosedTerminalEndsAllRanks) {
  const auto mark = str("LOCKSTEP_TEST_MARK=", ::getpid(), ".terminal");
  auto command = test::joined({"env", mark, "TMPDIR=" + folder_.path().string()},
                              command_line({}, "600"));
  std::vector<char*> arguments;
  for (auto& argument : command) arguments.push_back(argument.data());
  arguments.push_back(nullptr);
  int master = -1;
  const pid_t pid = ::forkpty(&master, nullptr, nullptr, nullptr);
  if (pid == 0) {
    ::execvp(arguments[0], arguments.data());
    ::_exit(127);
  }
  files::Descriptor terminal(master);
  EXPECT_TRUE(test::exchanging_ranks(mark, 2));
  terminal.reset();
  int status = 0;
  EXPECT_TRUE(
      test::eventually([&] { return ::waitpid(pid, &status, WNOHANG) == pid; }));
  EXPECT_TRUE(test::eventually([&] { return test::processes_with(mark).empty(); }));
  EXPECT_TRUE(test::eventually([&] { return test::is_free(port_); }));
}

}  // namespace
}  // namespace lockstep
