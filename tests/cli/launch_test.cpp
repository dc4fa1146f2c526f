#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lockstep/base/text.h"
#include "lockstep/hardware/cpu_topology.h"
#include "lockstep/run/rank_environment.h"
#include "lockstep/run/run_directory.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;

using Environment = std::vector<std::pair<std::string, std::string>>;

// Real launches, with a directory of their own for what is temporary.
class Launch : public ::testing::Test {
 protected:
  process::Output run(std::vector<std::string> words, Environment environment = {}) {
    words.insert(words.begin(), {test::binary("lockstep").string(), "launch"});
    environment.emplace_back("TMPDIR", directory_.path() / "tmp");
    return process::run({.arguments = std::move(words),
                         .environment = std::move(environment),
                         .directory = directory_.path()},
                        test::kPatience);
  }

  void SetUp() override {
    std::filesystem::create_directory(directory_.path() / "tmp");
  }

  std::string path(const std::string& name) const { return directory_.path() / name; }

  void script(const std::string& name, const std::string& content, int mode) const {
    test::write_file(path(name), content);
    std::filesystem::permissions(path(name), std::filesystem::perms(mode));
  }

  files::TemporaryDirectory directory_;
};

TEST_F(Launch, EveryRankFindsItselfInItsEnvironment) {
  const auto output =
      run({"--nproc-per-node", "3", "--rdzv-id", "job", "--role", "r", "--max-restarts",
           "2", "--", "sh", "-c", "env -0 > " + path("env") + ".$RANK"});
  ASSERT_TRUE(output.end.ok()) << output.err;
  for (int rank = 0; rank < 3; ++rank) {
    run::Variables variables;
    for (const auto& entry :
         text::split(test::read_file(path("env." + std::to_string(rank))), '\0')) {
      const auto equals = entry.find('=');
      if (equals == std::string::npos) continue;
      variables[entry.substr(0, equals)] = entry.substr(equals + 1);
    }
    const auto found = run::detect(variables);
    EXPECT_EQ(found.by, run::StartedBy::lockstep);
    EXPECT_EQ(found.rank, rank);
    EXPECT_EQ(found.local_rank, rank);
    EXPECT_EQ(found.world_size, 3);
    EXPECT_EQ(found.master_address, "127.0.0.1");
    EXPECT_GT(found.master_port, 0);
    EXPECT_EQ(found.job_id, "job");
    EXPECT_EQ(found.role, "r");
    EXPECT_EQ(found.max_restarts, 2);
    EXPECT_THAT(found.token, Not(IsEmpty()));
    EXPECT_TRUE(variables.contains("OMP_NUM_THREADS"));
    EXPECT_THAT(variables["TORCHELASTIC_ERROR_FILE"],
                EndsWith("error_rank_" + std::to_string(rank) + ".json"));
  }
}

TEST_F(Launch, TheProgramKeepsItsOwnOptions) {
  const std::vector<std::string> program = {
      "printf", "%s|", "--help", "--no-color", "--nproc-per-node", "-n", "--", "a b"};
  const std::string printed = "--help|--no-color|--nproc-per-node|-n|--|a b|";
  EXPECT_THAT(run(program).out, HasSubstr(printed));
  auto with_dashes = program;
  with_dashes.insert(with_dashes.begin(), {"--nproc-per-node=1", "--"});
  EXPECT_THAT(run(with_dashes).out, HasSubstr(printed));
}

TEST_F(Launch, LeavesNothingBehindWhenAllWentWell) {
  const auto output = run({"--nproc-per-node", "2", "true"});
  EXPECT_TRUE(output.end.ok()) << output.err;
  EXPECT_THAT(test::names_in(path("tmp")), IsEmpty());
}

TEST_F(Launch, AFailureKeepsTheLogsAndNamesThem) {
  const auto output = run({"-q", "sh", "-c", "echo doomed; exit 9"});
  EXPECT_EQ(output.end.exit_status, 1);
  const auto kept = test::names_in(path("tmp"));
  ASSERT_THAT(kept, SizeIs(1));
  EXPECT_THAT(output.err, AllOf(HasSubstr("exit status 9"), HasSubstr(kept[0])));
  EXPECT_THAT(test::read_file(path("tmp/" + kept[0] + "/logs/rank_0.log")),
              HasSubstr("doomed"));
}

TEST_F(Launch, WithALogDirectoryTheRunIsKept) {
  const auto output = run({"--log_dir", "logs", "echo", "hello"});
  EXPECT_TRUE(output.end.ok()) << output.err;
  EXPECT_THAT(output.err, HasSubstr("logs/0001"));
  const auto record = run::RunDirectory::open(path("logs/0001")).read_record();
  EXPECT_EQ(record.state, run::RunStatus::done);
  EXPECT_THAT(record.command, EndsWith("launch --log_dir logs echo hello"));
  EXPECT_EQ(test::read_file(path("logs/0001/logs/rank_0.log")), "hello\n");
}

TEST_F(Launch, ThreadsAreChosenAndSaid) {
  const std::vector<std::string> program = {"sh", "-c", "echo $OMP_NUM_THREADS"};
  const auto lockstep = test::binary("lockstep").string();
  // ctest sets the variable for its tests.
  const auto chosen = test::run({"env", "-u", "OMP_NUM_THREADS", lockstep, "launch",
                                 program[0], program[1], program[2]});
  const auto cores = hardware::cpu_topology();
  const auto threads =
      std::to_string(std::min(cores.num_cores(), cores.quota.value_or(1 << 20)));
  EXPECT_EQ(chosen.out, threads + "\n");
  EXPECT_THAT(chosen.err, HasSubstr("OMP_NUM_THREADS=" + threads + " for each rank ("));
  const auto set = run(program, {{"OMP_NUM_THREADS", "7"}});
  EXPECT_EQ(set.out, "7\n");
  EXPECT_THAT(set.err, HasSubstr("OMP_NUM_THREADS=7 for each rank, as in the env"));
  EXPECT_THAT(run({"--quiet", "true"}).err, IsEmpty());
}

TEST_F(Launch, BoundRanksRunWhereTheyAreSaidTo) {
  const auto output =
      run({"--nproc-per-node", "2", "--binding", "cores", "--", "sh", "-c",
           "grep Cpus_allowed_list /proc/self/status > " + path("cpus") + ".$RANK"});
  ASSERT_TRUE(output.end.ok()) << output.err;
  const auto first = test::read_file(path("cpus.0"));
  const auto second = test::read_file(path("cpus.1"));
  EXPECT_THAT(first, StartsWith("Cpus_allowed_list:"));
  if (hardware::cpu_topology().num_cores() < 2) {
    EXPECT_EQ(first, second);
  } else {
    EXPECT_NE(first, second);
  }
}

TEST_F(Launch, APortThatIsTakenIsNamedWithItsHolder) {
  const files::Descriptor listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(::listen(listener.get(), 1), 0);  // on a port that the kernel chooses
  sockaddr_in address{};
  socklen_t size = sizeof address;
  ::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&address), &size);
  const auto port = std::to_string(ntohs(address.sin_port));
  const auto output = run({"--master-port", port, "true"});
  EXPECT_EQ(output.end.exit_status, 2);
  EXPECT_THAT(output.err, HasSubstr("port: " + port + " is taken by process " +
                                    std::to_string(::getpid())));
  EXPECT_THAT(test::names_in(path("tmp")), IsEmpty());
}

TEST_F(Launch, PythonScriptsRunUnderPython) {
  script("plain.py", "import sys; print('plain', sys.argv[1])\n", 0644);
  script("own.py", "#!/bin/sh\necho own $1\n", 0755);
  script("no_shebang.py", "print('none')\n", 0755);
  const auto plain = run({"plain.py", "x"});
  EXPECT_EQ(plain.out, "plain x\n");
  EXPECT_THAT(plain.err, HasSubstr("is a Python script: running python3 -u plain.py"));
  EXPECT_EQ(run({"own.py", "y"}).out, "own y\n");
  EXPECT_EQ(run({"no_shebang.py"}).out, "none\n");
  EXPECT_EQ(run({"--no_python", "./own.py", "z"}).out, "own z\n");
  EXPECT_EQ(run({"plain.py", "x"}, {{"PYTHON_EXEC", "/bin/echo"}}).out,
            "-u plain.py x\n");
  EXPECT_EQ(run({"-m", "some.module"}, {{"PYTHON_EXEC", "/bin/echo"}}).out,
            "-u -m some.module\n");
  EXPECT_THAT(run({"-m", "--no-python", "x"}).err, HasSubstr("contradict"));
  EXPECT_THAT(run({"missing.py"}).err, HasSubstr("'missing.py' does not exist"));
}

TEST_F(Launch, WhatIsNoProgramIsRefusedBeforeAnythingIsMade) {
  script("here", "#!/bin/sh\n", 0755);
  script("data", "", 0644);
  EXPECT_THAT(run({"here"}).err, HasSubstr("in this directory write ./here"));
  EXPECT_THAT(run({"no_such_program"}).err, HasSubstr("is not a program on PATH"));
  EXPECT_THAT(run({"./nowhere"}).err, HasSubstr("'./nowhere' does not exist"));
  EXPECT_THAT(run({"./data"}).err, HasSubstr("'./data' is not an executable file"));
  EXPECT_EQ(run({"./nowhere"}).end.exit_status, 2);
  EXPECT_THAT(run({}).err, HasSubstr("PROGRAM is missing"));
  EXPECT_THAT(test::names_in(path("tmp")), IsEmpty());
}

}  // namespace
}  // namespace lockstep
