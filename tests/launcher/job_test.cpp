// What ranks get, and where what they print goes.
#include "lockstep/launcher/job.h"

#include <cstring>

#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "lockstep/base/leftovers.h"
#include "lockstep/run/heartbeat.h"
#include "tests/launcher/job_rig.h"

namespace lockstep {
namespace {

using run::RunStatus;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using JobOfRanks = test::JobRig;

TEST_F(JobOfRanks, EveryRankKnowsWhoItIs) {
  const std::vector<std::string> names{"RANK",           "LOCAL_RANK",
                                       "WORLD_SIZE",     "LOCAL_WORLD_SIZE",
                                       "MASTER_ADDR",    "TORCHELASTIC_RESTART_COUNT",
                                       "MASTER_PORT",    "TORCHELASTIC_ERROR_FILE",
                                       "OMP_NUM_THREADS"};
  std::vector<std::string> words;
  for (const auto& name : names) words.push_back("env=" + name);
  ::unsetenv("OMP_NUM_THREADS");
  auto job = job_of(2, words);
  job.ranks[1].place.threads = 3;
  EXPECT_EQ(run(job).state, RunStatus::done);
  const auto notes = test::read_file(notes_);
  for (const auto* line :
       {"RANK=0\n", "RANK=1\n", "LOCAL_RANK=0\n", "LOCAL_RANK=1\n", "\nWORLD_SIZE=2\n",
        "LOCAL_WORLD_SIZE=2\n", "MASTER_ADDR=127.0.0.1\n", "RESTART_COUNT=0\n",
        "OMP_NUM_THREADS=1\n", "OMP_NUM_THREADS=3\n"}) {
    EXPECT_THAT(notes, HasSubstr(line));
  }
  EXPECT_THAT(notes, HasSubstr("ERROR_FILE=" + run_.error(1).string() + "\n"));
  EXPECT_NE(found("MASTER_PORT"), "0");
}

TEST_F(JobOfRanks, RanksOfALaterNodeCountUpFromItsFirst) {
  auto job = job_of(2, {"env=RANK", "env=LOCAL_RANK", "say=here"});
  job.first.rank = 4;
  job.first.world_size = 6;
  job.first.node = 2;
  job.first.nodes = 3;
  job.first.master_address = "127.0.0.1";
  job.first.master_port = 29'500;
  const auto result = run(job);
  EXPECT_EQ(result.state, RunStatus::done);
  EXPECT_EQ(result.ends[1].rank, 5);
  EXPECT_EQ(result.ends[1].local_rank, 1);
  EXPECT_THAT(
      test::read_file(notes_),
      AllOf(HasSubstr("RANK=4\n"), HasSubstr("RANK=5\n"), HasSubstr("LOCAL_RANK=1\n")));
  EXPECT_EQ(test::read_file(run_.log(5)), "here\n");
}

// A heartbeat file says for how many ranks it is: one that an earlier command left,
// with fewer, must not hide the ranks of this one.
TEST_F(JobOfRanks, MoreRanksThanBeforeAreAllSeen) {
  { run::HeartbeatWriter(run_.heartbeat(), {0, 1}).beat(7, run::Phase::finished); }
  auto job = worker_job(3, {"steps=3:30", "beat=3:finished"});
  job.hang_limits->startup = std::chrono::milliseconds(2'000);
  EXPECT_EQ(run(job).state, RunStatus::done);
}

TEST_F(JobOfRanks, ABeatOfAnEarlierCommandIsNotTakenForOneOfThis) {
  for (int rank = 0; rank < 2; ++rank) {
    run::HeartbeatWriter(run_.heartbeat(), {rank, 2}).beat(7, run::Phase::finished);
  }
  const auto result = run(worker_job(2, {"r0.steps=1:1", "r0.hang", "r1.exit=0"}));
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_THAT(result.message, HasSubstr("ended with exit status 0 before it had"));
}

TEST_F(JobOfRanks, TooFewOpenFilesAreRefusedBeforeARankStarts) {
  const int status = test::in_child([&] {
    const rlimit few{.rlim_cur = 40, .rlim_max = 40};
    ::setrlimit(RLIMIT_NOFILE, &few);
    launcher::Signals signals;
    const auto text = test::error_text(Fault::hardware, [&] {
      launcher::run_job(run_, job_of(2, {"note=started"}), signals);
    });
    const bool told = text.find("may open 40 files here, and one of 2 ranks needs") !=
                          std::string::npos &&
                      text.find("ulimit -n ") != std::string::npos;
    return told ? 0 : 1;
  });
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(notes_));
}

TEST_F(JobOfRanks, ASoftLimitOfOpenFilesIsRaised) {
  const int status = test::in_child([&] {
    rlimit few{};
    ::getrlimit(RLIMIT_NOFILE, &few);
    few.rlim_cur = 40;
    ::setrlimit(RLIMIT_NOFILE, &few);
    launcher::Signals signals;
    return launcher::run_job(run_, job_of(2, {"note=started"}), signals).exit;
  });
  EXPECT_EQ(status, 0);
}

TEST_F(JobOfRanks, ALoopbackThatIsDownIsOneLine) {
  const int status = test::in_child([&] {
    if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return 77;
    launcher::Signals signals;
    const auto text = test::error_text(Fault::hardware, [&] {
      launcher::run_job(run_, job_of(2, {"note=started"}), signals);
    });
    const auto is_there = [&](const char* part) {
      return text.find(part) != std::string::npos;
    };
    return is_there("127.0.0.1, where ranks rendezvous, cannot be reached") &&
                   is_there("ip link set lo up") && !is_there("frame")
               ? 0
               : 1;
  });
  if (status == 77) GTEST_SKIP() << "no network namespaces for this user";
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(notes_));
}

TEST_F(JobOfRanks, ThreadsThatSomebodyChoseAreKept) {
  ::setenv("OMP_NUM_THREADS", "7", 1);
  auto job = job_of(1, {"env=OMP_NUM_THREADS"});
  job.ranks[0].place.threads = 3;
  run(job);
  ::unsetenv("OMP_NUM_THREADS");
  EXPECT_EQ(found("OMP_NUM_THREADS"), "7");
  std::filesystem::remove(notes_);
  job.environment.emplace_back("OMP_NUM_THREADS", "5");
  run(job);
  EXPECT_EQ(found("OMP_NUM_THREADS"), "5");
}

TEST_F(JobOfRanks, WhatRanksPrintIsInTheirLogsAndShownOnlyIfAsked) {
  auto job = job_of(2, {"r0.say=from zero", "r1.say=from one"});
  job.ranks[1].console = launcher::StdStreams::both;
  run(job);
  EXPECT_EQ(test::read_file(run_.log(0)), "from zero\n");
  EXPECT_EQ(test::read_file(run_.log(1)), "from one\n");
  EXPECT_EQ(shown_, "[rank1]: from one\n");
}

TEST_F(JobOfRanks, ARankIsBoundToItsCpus) {
  cpu_set_t ours;
  ASSERT_EQ(::sched_getaffinity(0, sizeof ours, &ours), 0);
  int cpu = 0;
  while (!CPU_ISSET(cpu, &ours)) ++cpu;
  auto job = job_of(1, {});
  job.command = {"/bin/sh", "-c", "grep Cpus_allowed_list /proc/self/status"};
  job.ranks[0].place.cpus = {cpu};
  run(job);
  EXPECT_EQ(test::read_file(run_.log(0)), "Cpus_allowed_list:\t" + str(cpu) + "\n");
}

TEST_F(JobOfRanks, ThePortIsOursWhileTheyRun) {
  const auto result =
      run(job_of(2, {"r0.env=MASTER_PORT", "r0.listen", "await=.go"}), [this] {
        EXPECT_TRUE(noted("MASTER_PORT="));
        const auto port = text::to_integer(found("MASTER_PORT"));
        EXPECT_TRUE(test::eventually([&] {
          return test::error_of(
                     [&] { launcher::HeldPort::take(static_cast<int>(*port)); })
              .has_value();
        }));
        go(".go");
      });
  EXPECT_EQ(result.state, RunStatus::done) << result.message;
}

TEST_F(JobOfRanks, APortThatIsTakenIsAnErrorAndTheRecordSaysSo) {
  const auto held = launcher::HeldPort::any();
  auto job = job_of(2, {"note=started"});
  // Held and listened on, as by a store that runs.
  auto command = process::ProcessOptions{
      .arguments = {program().string(), "listen", "note=listens", "hang"},
      .environment = {{"MASTER_PORT", str(held.port())}, {"NOTES", notes_.string()}},
      .directory = {}};
  auto store = process::Child::start(command);
  ASSERT_TRUE(noted("listens"));
  job.first.master_port = held.port();
  launcher::Signals signals;
  const auto text =
      test::error_text(Fault::config, [&] { launcher::run_job(run_, job, signals); });
  EXPECT_THAT(text, HasSubstr(str(store.pid())));
  EXPECT_EQ(run_.read_record().state, RunStatus::failed);
  EXPECT_THAT(test::read_file(notes_), Not(HasSubstr("started")));
}

// Memory, or threads, may run out in the launcher itself.
TEST_F(JobOfRanks, AnyExceptionOfTheLauncherIsTheEndOfTheRun) {
  auto job = job_of(1, {"exit=1"});
  job.first.max_restarts = 1;
  job.say = [](std::string_view) { throw std::bad_alloc(); };
  launcher::Signals signals;
  EXPECT_THROW(launcher::run_job(run_, job, signals), std::bad_alloc);
  EXPECT_EQ(run_.read_record().state, run::RunStatus::failed);
  EXPECT_EQ(run_.read_record().exit, kExitFailed);
}

TEST_F(JobOfRanks, WhatKilledRanksWereWritingIsSweptWhenTheyHaveEnded) {
  const auto of_dead_rank = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      test::write_file(
          run_.path() / (".error_rank_2.json." + files::owner_mark() + ".a1B2c3"), "{");
      ::_exit(0);
    }
    int status = 0;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
  };
  of_dead_rank();
  // Once more while the ranks run.
  run(job_of(1, {"await=.on"}), [&] {
    EXPECT_TRUE(test::eventually([&] { return !events("launched").empty(); }));
    of_dead_rank();
    go(".on");
  });
  for (const auto& name : test::names_in(run_.path())) {
    EXPECT_NE(name.front(), '.') << name;
  }
}

// Nothing that the ranks compute could be kept.
TEST_F(JobOfRanks, ARunWhoseDirectoryIsRemovedEndsItsRanks) {
  launcher::Signals signals;
  std::jthread helper([&] {
    EXPECT_TRUE(noted_by_all("ready", 2));
    EXPECT_TRUE(test::eventually([&] { return !events("launched").empty(); }));
    std::filesystem::remove_all(run_.path());
  });
  const auto result = launcher::run_job(
      run_, worker_job(2, {"steps=1:1", "note=ready", "steps=100000:10"}), signals);
  EXPECT_EQ(result.state, RunStatus::failed);
  EXPECT_EQ(result.exit, 3);
  EXPECT_EQ(result.message, "the run directory " + run_.path().string() + " is gone");
  EXPECT_EQ(launcher::processes_with(parent_.path().string()), std::vector<pid_t>());
  EXPECT_FALSE(std::filesystem::exists(run_.path()));
  EXPECT_THAT(said_, ::testing::IsEmpty());
}

// Of a program of others the directory holds no more than logs.
TEST_F(JobOfRanks, AnyOtherProgramGoesOnWithoutItsDirectory) {
  launcher::Signals signals;
  std::jthread helper([&] {
    EXPECT_TRUE(noted("0 ready"));
    std::filesystem::remove_all(run_.path());
    std::this_thread::sleep_for(std::chrono::milliseconds(2'500));
    go(".on");
  });
  const auto result =
      launcher::run_job(run_, job_of(1, {"note=ready", "await=.on"}), signals);
  EXPECT_EQ(result.exit, 0);
}

TEST_F(JobOfRanks, AProgramThatDoesNotStartLeavesNobodyBehind) {
  auto job = job_of(2, {"hang"});
  job.ranks[1].place.cpus = {100'000};
  launcher::Signals signals;
  const auto text =
      test::error_text(Fault::io, [&] { launcher::run_job(run_, job, signals); });
  EXPECT_THAT(text, HasSubstr("on the CPUs chosen for it"));
  EXPECT_TRUE(launcher::processes_with(parent_.path().string()).empty());
  EXPECT_EQ(run_.read_record().state, RunStatus::failed);
}

TEST_F(JobOfRanks, AJobOutlivesItsGuard) {
  const auto is_guard = [](pid_t pid) {
    const auto folder = "/proc/" + std::to_string(pid);
    return test::read_file(folder + "/comm") == "lockstep-guard\n" &&
           test::read_file(folder + "/status").find(str("PPid:\t", ::getpid(), "\n")) !=
               std::string::npos;
  };
  const auto result = run(job_of(1, {"note=ready", "await=.go"}), [&] {
    EXPECT_TRUE(noted("0 ready"));
    EXPECT_TRUE(test::eventually([&] {
      for (const auto& name : test::names_in("/proc")) {
        const auto pid = static_cast<pid_t>(text::to_integer(name).value_or(0));
        if (pid != 0 && is_guard(pid)) return ::kill(pid, SIGKILL) == 0;
      }
      return false;
    }));
    go(".go");
  });
  EXPECT_EQ(result.state, RunStatus::done);
}

TEST_F(JobOfRanks, UserSignalsReachEveryRank) {
  const auto result = run(job_of(2, {"answer=10", "note=ready", "hang"}), [this] {
    EXPECT_TRUE(noted_by_all("ready", 2));
    ::kill(::getpid(), SIGUSR1);
  });
  for (const auto& end : result.ends) EXPECT_EQ(end.end.exit_status, 128 + SIGUSR1);
  EXPECT_EQ(result.state, RunStatus::stopped);
  EXPECT_EQ(result.exit, 128 + SIGUSR1);
}

TEST_F(JobOfRanks, TheStartIsAnEvent) {
  run(job_of(2, {}));
  const auto launched = events("launched");
  ASSERT_EQ(launched.size(), 1U);
  EXPECT_EQ(value(launched[0], "ranks"), "2");
  EXPECT_EQ(value(launched[0], "attempt"), "0");
}

// An environment is read in pieces of 16 KiB: the mark may lie across their seam.
TEST_F(JobOfRanks, TheSweepFindsAMarkWhereverItLies) {
  std::size_t ours = 0;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    ours += std::strlen(*entry) + 1;
  }
  constexpr std::size_t kPiece = 16 << 10;
  for (const std::size_t at : {0, 1, 16, 31, 32, 33}) {
    const auto mark = launcher::make_mark();
    // "A=<filler>\0B=<mark>" behind ours, with `at` bytes of the mark before a seam.
    const auto begin = ours + 5;
    const auto filler = (begin / kPiece + 1) * kPiece - at - begin;
    auto child = process::Child::start(
        {.arguments = {program().string(), "hang"},
         .environment = {{"A", std::string(filler, 'x')}, {"B", mark}},
         .directory = {}});
    EXPECT_THAT(launcher::processes_with(mark), ::testing::ElementsAre(child.pid()));
    EXPECT_TRUE(launcher::sweep(mark));
    EXPECT_EQ(child.wait().signal, SIGKILL);
  }
}

}  // namespace
}  // namespace lockstep
