// Slurm, the MPI family and LSF.
#include "lockstep/run/rank_environment.h"
#include "tests/run/launcher_variables.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using run::detect;
using run::StartedBy;
using run::Variables;
using test::merged;
using test::mpirun_variables;
using test::slurm_variables;
using ::testing::HasSubstr;

std::string foreign_refusal(const Variables& variables) {
  return test::error_text(Fault::config, [&] { detect(variables); });
}

TEST(ForeignLaunchers, SlurmsNumbersAndListsAreRead) {
  const auto found = detect(slurm_variables());
  EXPECT_EQ(found.by, StartedBy::slurm);
  EXPECT_EQ(found.rank, 6);
  EXPECT_EQ(found.world_size, 11);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(found.local_world_size, 4);
  EXPECT_EQ(found.node, 1);
  EXPECT_EQ(found.nodes, 3);
  EXPECT_EQ(found.master_address, "gnode08");
  EXPECT_EQ(found.master_port, 15000 + 4567);
  EXPECT_EQ(found.job_id, "1234567");

  auto last = slurm_variables();
  last["SLURM_NODEID"] = "2";
  EXPECT_EQ(detect(last).local_world_size, 3);
}

TEST(ForeignLaunchers, AStepOnSomeOfTheNodesMeetsOnItsOwnFirst) {
  auto step = slurm_variables();
  step["SLURM_STEP_NODELIST"] = "gnode[09-10]";
  step["SLURM_STEP_NUM_NODES"] = "2";
  EXPECT_EQ(detect(step).master_address, "gnode09");
  EXPECT_EQ(detect(step).nodes, 2);
}

TEST(ForeignLaunchers, AnExportedMasterWinsOverSlurmsList) {
  auto variables = slurm_variables();
  variables["MASTER_ADDR"] = "ib0.gnode08";
  variables["MASTER_PORT"] = "4000";
  EXPECT_EQ(detect(variables).master_address, "ib0.gnode08");
  EXPECT_EQ(detect(variables).master_port, 4000);
}

TEST(ForeignLaunchers, AShellInsideAnAllocationIsNoRank) {
  for (const std::string name : {"bash", "interactive"}) {
    auto variables = slurm_variables();
    variables["SLURM_JOB_NAME"] = name;
    const auto found = detect(variables);
    EXPECT_EQ(found.by, StartedBy::single) << name;
    EXPECT_THAT(found.note, HasSubstr("inside Slurm job 1234567"));
  }
  auto variables = slurm_variables();
  variables.erase("SLURM_NTASKS");
  EXPECT_EQ(detect(variables).by, StartedBy::single);
}

// Its other ranks would never come: the hang that everybody has met once.
TEST(ForeignLaunchers, AProcessOfABatchScriptIsToldToUseSrun) {
  auto variables = slurm_variables();
  variables.erase("SLURM_STEP_ID");
  EXPECT_THAT(foreign_refusal(variables),
              HasSubstr("SLURM_NTASKS=11 tasks, but this process was not started by "
                        "srun"));
  variables["SLURM_NTASKS"] = "1";
  variables["SLURM_PROCID"] = "0";
  variables["SLURM_NNODES"] = "1";
  variables["SLURM_NODEID"] = variables["SLURM_LOCALID"] = "0";
  EXPECT_EQ(detect(variables).by, StartedBy::slurm);
}

TEST(ForeignLaunchers, MpirunOnOneHostNeedsNoAddress) {
  const auto found = detect(mpirun_variables());
  EXPECT_EQ(found.by, StartedBy::mpi);
  EXPECT_EQ(found.rank, 2);
  EXPECT_EQ(found.world_size, 4);
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(found.nodes, 1);
  EXPECT_EQ(found.master_address, "127.0.0.1");
  EXPECT_GE(found.master_port, 25000);
  EXPECT_LT(found.master_port, 29000);

  auto other_rank = mpirun_variables();
  other_rank["OMPI_COMM_WORLD_RANK"] = other_rank["OMPI_COMM_WORLD_LOCAL_RANK"] = "0";
  EXPECT_EQ(detect(other_rank).master_port, found.master_port);
  auto other_job = mpirun_variables();
  other_job["PMIX_NAMESPACE"] = "3341287426";
  EXPECT_NE(detect(other_job).master_port, found.master_port);
}

TEST(ForeignLaunchers, MpirunOnSeveralHostsIsToldWhatToExport) {
  auto variables = mpirun_variables();
  variables["OMPI_COMM_WORLD_LOCAL_SIZE"] = "3";
  EXPECT_THAT(foreign_refusal(variables),
              HasSubstr("mpirun -x MASTER_ADDR -x MASTER_PORT"));
  variables["MASTER_ADDR"] = "h0";
  variables["MASTER_PORT"] = "2222";
  EXPECT_EQ(detect(variables).master_address, "h0");
  EXPECT_EQ(detect(variables).nodes, 2);
}

TEST(ForeignLaunchers, TheOtherMpisAreKnown) {
  const auto hydra = detect({{"PMI_RANK", "3"},
                             {"PMI_SIZE", "4"},
                             {"MPI_LOCALRANKID", "3"},
                             {"MPI_LOCALNRANKS", "4"}});
  EXPECT_EQ(hydra.by, StartedBy::mpi);
  EXPECT_EQ(hydra.rank, 3);
  EXPECT_EQ(hydra.local_world_size, 4);
  EXPECT_EQ(hydra.master_port, 29500);
  const auto mvapich = detect({{"MV2_COMM_WORLD_RANK", "1"},
                               {"MV2_COMM_WORLD_SIZE", "2"},
                               {"MV2_COMM_WORLD_LOCAL_RANK", "1"},
                               {"MV2_COMM_WORLD_LOCAL_SIZE", "2"}});
  EXPECT_EQ(mvapich.rank, 1);
  EXPECT_THAT(foreign_refusal({{"PMI_RANK", "3"}}), HasSubstr("PMI_SIZE is not"));
  EXPECT_THAT(foreign_refusal({{"PMI_RANK", "3"}, {"PMI_SIZE", "2"}}),
              HasSubstr("PMI_RANK=3 is not below PMI_SIZE=2"));
}

TEST(ForeignLaunchers, MpirunInsideASlurmAllocationWins) {
  const auto found = detect(merged(slurm_variables(), mpirun_variables()));
  EXPECT_EQ(found.by, StartedBy::mpi);
  EXPECT_EQ(found.world_size, 4);
  auto batch = slurm_variables();
  batch.erase("SLURM_STEP_ID");
  EXPECT_EQ(detect(merged(batch, mpirun_variables())).by, StartedBy::mpi);
}

TEST(ForeignLaunchers, SrunThatSetsMpisVariablesIsSlurm) {
  const auto found =
      detect(merged(slurm_variables(), {{"PMI_RANK", "6"}, {"PMI_SIZE", "11"}}));
  EXPECT_EQ(found.by, StartedBy::slurm);
}

TEST(ForeignLaunchers, LsfIsKnown) {
  const auto found = detect({{"JSM_NAMESPACE_RANK", "7"},
                             {"JSM_NAMESPACE_SIZE", "12"},
                             {"JSM_NAMESPACE_LOCAL_RANK", "1"},
                             {"JSM_NAMESPACE_LOCAL_SIZE", "6"},
                             {"LSB_JOBID", "98765"},
                             {"LSB_MCPU_HOSTS", "batch5 1 h41n08 42 h41n09 42 "}});
  EXPECT_EQ(found.by, StartedBy::lsf);
  EXPECT_EQ(found.node, 1);
  EXPECT_EQ(found.nodes, 2);
  EXPECT_EQ(found.master_address, "h41n08");
  EXPECT_EQ(found.master_port, 10765);
}

}  // namespace
}  // namespace lockstep
