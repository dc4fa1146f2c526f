// The same worker under our launcher and under the real ones of others; programs of
// others under our launcher.
#include "tests/system/ranks.h"

namespace lockstep {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kRanks[] = "4";

process::Output run_ranks(const std::vector<std::string>& command) {
  const files::TemporaryDirectory folder;  // where launchers keep the logs of failures
  return process::run(
      {.arguments = command, .environment = {{"TMPDIR", folder.path().string()}}},
      test::kJobPatience);
}

void expect_agreement(const process::Output& output, const std::string& launcher) {
  EXPECT_EQ(output.end.shell_status(), 0) << output.out << output.err;
  EXPECT_THAT(output.out, HasSubstr("4 ranks agree"));
  EXPECT_THAT(output.out + output.err, HasSubstr(launcher + ": rank 0 of 4"));
}

TEST(Peers, TheSelftestAgreesUnderOurLauncher) {
  const auto output =
      run_ranks(test::launch_worker({"--nproc-per-node", kRanks}, {"--selftest"}));
  expect_agreement(output, "lockstep");
}

TEST(Peers, TheSelftestAgreesUnderTorchrun) {
  LOCKSTEP_NEEDS_ORACLE();
  expect_agreement(
      run_ranks({test::torchrun(), "--no-python", "--standalone", "--nproc-per-node",
                 kRanks, test::worker(), "--selftest"}),
      "torchrun");
}

// As on a cluster: an address and a port instead of a meeting that torchrun arranges.
TEST(Peers, TheSelftestAgreesUnderTorchrunWithAMasterPort) {
  LOCKSTEP_NEEDS_ORACLE();
  expect_agreement(
      run_ranks({test::torchrun(), "--no-python", "--nproc-per-node", kRanks,
                 "--master-port", std::to_string(test::free_port()), test::worker(),
                 "--selftest"}),
      "torchrun");
}

TEST(Peers, TheSelftestAgreesUnderMpirun) {
  ASSERT_TRUE(test::is_installed("mpirun")) << "scripts/setup.sh installs openmpi-bin";
  // Open MPI refuses root, and more ranks than cores, unless told otherwise.
  expect_agreement(run_ranks({"mpirun", "--allow-run-as-root", "--oversubscribe", "-n",
                              kRanks, test::worker(), "--selftest"}),
                   "mpi");
}

TEST(Peers, APyTorchProgramRunsUnderOurLauncher) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto output =
      run_ranks({test::binary("lockstep").string(), "launch", "--nproc-per-node", "2",
                 "--tee", "3", "--local-ranks-filter", "0,1", "--",
                 test::oracle_python(), test::fixture("oracle/ranks.py")});
  EXPECT_EQ(output.end.shell_status(), 0) << output.out << output.err;
  EXPECT_THAT(output.out, HasSubstr("[rank0]: rank 0 of 2 has 3, local 0 of 2\n"));
  EXPECT_THAT(output.out, HasSubstr("[rank1]: rank 1 of 2 has 3, local 1 of 2\n"));
}

TEST(Peers, APyTorchProgramsExceptionIsInOurReport) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto output = run_ranks({test::binary("lockstep").string(), "launch",
                                 "--nproc-per-node", "2", "--", test::oracle_python(),
                                 test::fixture("oracle/ranks.py"), "raise"});
  EXPECT_NE(output.end.shell_status(), 0);
  EXPECT_THAT(output.err, HasSubstr("rank 1 "));
  EXPECT_THAT(output.err, HasSubstr("ValueError: a layer of 7 does not fit one of 8"));
}

TEST(Peers, OurWorkersErrorIsInTorchrunsReport) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto output =
      run_ranks({test::torchrun(), "--no-python", "--standalone", "--nproc-per-node",
                 "2", test::worker(), "--run-dir", "/no/such/run"});
  EXPECT_NE(output.end.shell_status(), 0);
  EXPECT_THAT(output.err, HasSubstr("Root Cause"));
  const auto report = output.err.substr(output.err.find("Root Cause"));
  EXPECT_THAT(report, HasSubstr("/no/such/run"));
  EXPECT_THAT(report, Not(HasSubstr("To enable traceback")));
}

}  // namespace
}  // namespace lockstep
