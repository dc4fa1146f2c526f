// Runs made by `lockstep train --prepare`: whoever starts their ranks.
#include <signal.h>

#include "lockstep/run/trace.h"
#include "tests/system/training.h"

namespace lockstep {
namespace {

using run::RunStatus;
using testing::HasSubstr;

using PreparedRunVariables = std::vector<std::pair<std::string, std::string>>;

class PreparedRun : public testing::Test {
 protected:
  // What the command says to start the ranks with, typed as it is.
  void expect_trained_by(const std::string& launcher,
                         PreparedRunVariables environment) const {
    const auto prepared = test::prepare_run(run_, 2, {"train.steps=6"});
    EXPECT_EQ(text::trim(prepared.out), run_.string());
    EXPECT_EQ(test::record_of(run_).state, RunStatus::planned);
    const auto begin = prepared.err.find("\n  " + launcher + " ");
    ASSERT_NE(begin, std::string::npos) << prepared.err;
    const auto line =
        prepared.err.substr(begin + 3, prepared.err.find('\n', begin + 1) - begin - 3);
    const auto programs = test::binary("lockstep").parent_path().string() + ":" +
                          test::Path(test::torchrun()).parent_path().string();
    environment.emplace_back("PATH", programs + ":" + std::getenv("PATH"));
    test::Job job({"/bin/sh", "-c", line}, environment);
    const auto end = job.wait_for(test::kJobPatience);
    ASSERT_TRUE(end.has_value()) << job.text();
    EXPECT_EQ(end->shell_status(), 0) << job.text();
    EXPECT_THAT(job.text(), HasSubstr("6 (250 samples)"));
    EXPECT_TRUE(job.is_gone());
    EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
    EXPECT_EQ(test::record_of(run_).exit, 0);
    for (const int rank : {0, 1}) EXPECT_EQ(test::beat_of(run_, rank)->step, 6);
  }

  // One rank, the first of so many, that nobody of ours has started.
  static PreparedRunVariables as_first_of(int ranks) {
    return {{"RANK", "0"},
            {"WORLD_SIZE", std::to_string(ranks)},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", std::to_string(test::free_port())}};
  }

  files::TemporaryDirectory folder_;
  test::Path run_ = folder_.path() / "run";
};

TEST_F(PreparedRun, IsTrainedByOurLauncher) {
  expect_trained_by("lockstep launch", {});
}

TEST_F(PreparedRun, IsTracedIntoADirectoryThatIsMade) {
  test::prepare_run(run_, 1, {"train.steps=1"});
  const auto traces = folder_.path() / "not" / "there yet";
  const auto output = test::run({test::binary("lockstep_worker").string(), "--run-dir",
                                 run_.string(), "--trace", traces.string()});
  EXPECT_EQ(output.end.shell_status(), 0) << output.err;
  EXPECT_TRUE(std::filesystem::exists(traces / run::step_file(1)));
}

TEST_F(PreparedRun, IsTrainedByTorchrun) {
  LOCKSTEP_NEEDS_ORACLE();
  // Its own port is the same for everybody on this machine.
  expect_trained_by("torchrun",
                    {{"PET_MASTER_PORT", std::to_string(test::free_port())}});
}

TEST_F(PreparedRun, IsTrainedByMpirun) {
  ASSERT_TRUE(test::is_installed("mpirun")) << "scripts/setup.sh installs openmpi-bin";
  // Open MPI refuses root, and more ranks than cores, unless told otherwise.
  expect_trained_by("mpirun", {{"OMPI_ALLOW_RUN_AS_ROOT", "1"},
                               {"OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"},
                               {"OMPI_MCA_rmaps_base_oversubscribe", "1"}});
}

TEST_F(PreparedRun, AMissingRankEndsTheOneThatWaits) {
  test::prepare_run(run_, 2, {"comm.join_timeout=1s"});
  test::Job job({test::worker(), "--run-dir", run_.string()}, as_first_of(2));
  const auto end = job.wait_for(test::kPatience);
  ASSERT_TRUE(end.has_value()) << job.text();
  EXPECT_EQ(end->shell_status(), exit_status(Fault::comm)) << job.text();
  EXPECT_THAT(job.text(), HasSubstr("rank 1 (node 0) did not join within 1s"));
  EXPECT_EQ(test::record_of(run_).state, RunStatus::failed);
  EXPECT_THAT(test::record_of(run_).message, HasSubstr("rank 1 (node 0) did not join"));
}

TEST_F(PreparedRun, AMissingRankIsDoneWithoutWhereTheConfigSaysSo) {
  test::prepare_run(
      run_, 2,
      {"comm.join_timeout=1s", "parallel.on_setup_failure=single", "train.steps=4"});
  test::Job job({test::worker(), "--run-dir", run_.string()}, as_first_of(2));
  const auto end = job.wait_for(test::kPatience);
  ASSERT_TRUE(end.has_value()) << job.text();
  EXPECT_EQ(end->shell_status(), 0) << job.text();
  EXPECT_THAT(test::read_file(run_ / "logs" / "rank_0.log"),
              testing::ContainsRegex("rank 1 .node 0. did not join.*; rank 0 continues "
                                     "alone .parallel.on_setup_failure=single"));
  EXPECT_EQ(test::record_of(run_).state, RunStatus::done);
}

// There is nothing to finish: it need not wait for the others first.
TEST_F(PreparedRun, ARankThatWaitsForOthersStopsWhenAsked) {
  for (const int number : {SIGTERM, SIGINT}) {
    run_ = folder_.path() / str("signal", number);
    test::prepare_run(run_, 2, {"comm.join_timeout=1h"});
    test::Job job({test::worker(), "--run-dir", run_.string()}, as_first_of(2));
    ASSERT_TRUE(test::eventually([&] { return test::beat_of(run_, 0).has_value(); }));
    ::kill(job.pid(), number);
    const auto end = job.wait_for(test::kPatience);
    ASSERT_TRUE(end.has_value()) << job.text();
    EXPECT_EQ(end->exit_status, 128 + number) << job.text();
    EXPECT_EQ(test::record_of(run_).state, RunStatus::stopped);
    EXPECT_THAT(test::read_file(run_ / "logs" / "rank_0.log"),
                HasSubstr("before all ranks had joined"));
  }
}

// A rank for ever, started by a shell that is killed with SIGKILL when it has trained
// some steps.
std::unique_ptr<test::Job> with_killed_parent(const test::Path& run,
                                              PreparedRunVariables environment) {
  test::prepare_run(run, 1, {test::kEndless});
  auto job = std::make_unique<test::Job>(
      std::vector<std::string>{
          "/bin/sh", "-c", test::worker() + " --run-dir '" + run.string() + "' & wait"},
      std::move(environment));
  EXPECT_TRUE(test::trains(run, 1)) << job->text();
  EXPECT_NE(test::beat_of(run, 0)->pid, job->pid());
  ::kill(job->pid(), SIGKILL);
  return job;
}

// torchrun and mpirun leave their ranks behind when they are killed.
TEST_F(PreparedRun, ARankEndsSoonAfterTheLauncherThatWasKilled) {
  auto environment = as_first_of(1);
  environment.emplace_back("TORCHELASTIC_RUN_ID", "job");
  const auto job = with_killed_parent(run_, environment);
  const auto killed = std::chrono::steady_clock::now();
  EXPECT_TRUE(job->is_gone()) << job->text();
  EXPECT_LT(std::chrono::steady_clock::now() - killed, test::kPatience);
}

TEST_F(PreparedRun, ARankStartedByHandOutlivesItsShell) {
  const auto job = with_killed_parent(run_, as_first_of(1));
  const auto step = test::beat_of(run_, 0)->step;
  EXPECT_TRUE(
      test::eventually([&] { return test::beat_of(run_, 0)->step > step + 10; }));
}

}  // namespace
}  // namespace lockstep
