#include "lockstep/run/rank_environment.h"

#include <random>

#include "tests/run/launcher_variables.h"
#include "tests/support/support.h"

namespace lockstep {
namespace {

using run::detect;
using run::RankEnvironment;
using run::StartedBy;
using run::Variables;
using test::merged;
using test::mpirun_variables;
using test::slurm_variables;
using test::torchrun_variables;
using ::testing::HasSubstr;

std::string detect_refusal(const Variables& variables) {
  return test::error_text(Fault::config, [&] { detect(variables); });
}

TEST(RankEnvironment, WithoutALauncherItIsASingleProcess) {
  const auto found = detect({{"PATH", "/bin"}});
  EXPECT_EQ(found, RankEnvironment());
  EXPECT_EQ(describe(found), "single process, no launcher");
}

TEST(RankEnvironment, AllThatTorchrunSaysIsRead) {
  const auto found = detect(torchrun_variables());
  EXPECT_EQ(found.by, StartedBy::torchrun);
  EXPECT_EQ(found.rank, 5);
  EXPECT_EQ(found.world_size, 8);
  EXPECT_EQ(found.local_rank, 1);
  EXPECT_EQ(found.local_world_size, 4);
  EXPECT_EQ(found.node, 1);
  EXPECT_EQ(found.nodes, 2);
  EXPECT_EQ(found.master_address, "node0.example");
  EXPECT_EQ(found.master_port, 29400);
  EXPECT_TRUE(found.agent_store);
  EXPECT_EQ(found.restart_count, 1);
  EXPECT_EQ(found.max_restarts, 3);
  EXPECT_EQ(found.job_id, "job-7");
  EXPECT_EQ(found.role, "trainer");
  EXPECT_EQ(found.error_file, "/tmp/x/error.json");
  EXPECT_EQ(describe(found),
            "torchrun: rank 5 of 8 (1 of 4 on node 1 of 2), store at "
            "node0.example:29400 in the launcher, restart 1 of 3");
}

TEST(RankEnvironment, WhatWeGiveARankIsWhatItFinds) {
  std::mt19937 random(1);
  for (int i = 0; i < 500; ++i) {
    RankEnvironment wanted;
    wanted.by = StartedBy::lockstep;
    wanted.local_world_size = 1 + static_cast<int>(random() % 8);
    wanted.nodes = 1 + static_cast<int>(random() % 4);
    wanted.world_size = wanted.nodes * wanted.local_world_size;
    wanted.node = static_cast<int>(random()) & 0xff;
    wanted.node %= wanted.nodes;
    wanted.local_rank = static_cast<int>(random() % 8) % wanted.local_world_size;
    wanted.rank = wanted.node * wanted.local_world_size + wanted.local_rank;
    wanted.master_address = i % 2 == 0 ? "127.0.0.1" : "fe80::1";
    wanted.master_port = 1 + static_cast<int>(random() % 65535);
    wanted.agent_store = random() % 2 == 0;
    wanted.max_restarts = static_cast<int>(random() % 5);
    wanted.restart_count = static_cast<int>(random() % 5);
    wanted.job_id = i % 3 == 0 ? "" : "id " + std::to_string(random());
    wanted.token = i % 5 == 0 ? "" : "token";
    wanted.role = "role " + std::to_string(i);
    wanted.error_file = i % 2 == 0 ? "" : "/a b/error.json";
    const auto list = variables_of(wanted);
    EXPECT_EQ(detect(Variables(list.begin(), list.end())), wanted) << describe(wanted);
    // Inside an allocation that has numbers of its own.
    EXPECT_EQ(detect(merged(merged(slurm_variables(), mpirun_variables()),
                            Variables(list.begin(), list.end()))),
              wanted);
  }
}

TEST(RankEnvironment, EveryVariableOfTorchrunIsGiven) {
  Variables given;
  for (const auto& [name, value] : run::variables_of({})) given[name] = value;
  for (const auto* name :
       {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK",
        "GROUP_WORLD_SIZE", "ROLE_RANK", "ROLE_NAME", "ROLE_WORLD_SIZE", "MASTER_ADDR",
        "MASTER_PORT", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS",
        "TORCHELASTIC_RUN_ID", "TORCHELASTIC_USE_AGENT_STORE",
        "TORCHELASTIC_ERROR_FILE", "TORCH_NCCL_ASYNC_ERROR_HANDLING"}) {
    EXPECT_TRUE(given.contains(name)) << name;
  }
}

TEST(RankEnvironment, APyTorchJobHasOneRankANode) {
  const auto found = detect({{"RANK", "2"},
                             {"WORLD_SIZE", "3"},
                             {"MASTER_ADDR", "job-master-0"},
                             {"MASTER_PORT", "23456"}});
  EXPECT_EQ(found.local_rank, 0);
  EXPECT_EQ(found.local_world_size, 1);
  EXPECT_EQ(found.node, 2);
  EXPECT_EQ(found.nodes, 3);
}

TEST(RankEnvironment, RanksAroundALoopbackAddressAreOnOneNode) {
  const auto found = detect({{"RANK", "2"},
                             {"WORLD_SIZE", "3"},
                             {"MASTER_ADDR", "localhost"},
                             {"MASTER_PORT", "29500"}});
  EXPECT_EQ(found.local_rank, 2);
  EXPECT_EQ(found.local_world_size, 3);
  EXPECT_EQ(found.nodes, 1);
}

TEST(RankEnvironment, OneRankNeedsNobodyToMeet) {
  const auto found = detect({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(found.by, StartedBy::torchrun);
  EXPECT_EQ(found.master_address, "");
}

TEST(RankEnvironment, ContradictionsShowBothSides) {
  const Variables master{{"MASTER_ADDR", "h"}, {"MASTER_PORT", "1"}};
  EXPECT_THAT(detect_refusal(merged(master, {{"RANK", "4"}, {"WORLD_SIZE", "4"}})),
              HasSubstr("RANK=4 is not below WORLD_SIZE=4"));
  EXPECT_THAT(detect_refusal({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
              HasSubstr("RANK=0 is not below WORLD_SIZE=0"));
  EXPECT_THAT(detect_refusal({{"RANK", "1"}}),
              HasSubstr("RANK=1 is set but WORLD_SIZE is not"));
  EXPECT_THAT(detect_refusal({{"WORLD_SIZE", "2"}}),
              HasSubstr("WORLD_SIZE=2 is set but RANK is not"));
  EXPECT_THAT(detect_refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("RANK=1 and WORLD_SIZE=2 are set without MASTER_ADDR"));
  EXPECT_THAT(
      detect_refusal({{"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "h"}}),
      HasSubstr("without MASTER_PORT"));
  const auto world = merged(master, {{"RANK", "1"}, {"WORLD_SIZE", "4"}});
  EXPECT_THAT(
      detect_refusal(merged(world, {{"LOCAL_RANK", "2"}, {"LOCAL_WORLD_SIZE", "2"}})),
      HasSubstr("LOCAL_RANK=2 is not below LOCAL_WORLD_SIZE=2"));
  EXPECT_THAT(detect_refusal(merged(world, {{"LOCAL_WORLD_SIZE", "8"}})),
              HasSubstr("LOCAL_WORLD_SIZE=8 is more than WORLD_SIZE=4"));
  EXPECT_THAT(detect_refusal(merged(world, {{"LOCAL_WORLD_SIZE", "0"}})),
              HasSubstr("LOCAL_WORLD_SIZE=0"));
  EXPECT_THAT(detect_refusal(merged(world, {{"LOCAL_RANK", "1"}})),
              HasSubstr("LOCAL_WORLD_SIZE is not; set it"));
  EXPECT_THAT(
      detect_refusal(merged(world, {{"GROUP_RANK", "2"}, {"GROUP_WORLD_SIZE", "2"}})),
      HasSubstr("GROUP_RANK=2 is not below GROUP_WORLD_SIZE=2"));
}

TEST(RankEnvironment, WhatIsNoNumberIsShown) {
  for (const std::string value : {"-1", "x", "1.5", "1e1", " 1", "99999999999999"}) {
    EXPECT_THAT(detect_refusal({{"RANK", value}, {"WORLD_SIZE", "4"}}),
                HasSubstr("RANK='" + value + "' is not a whole number"));
  }
  auto variables = torchrun_variables();
  variables["MASTER_PORT"] = "65536";
  EXPECT_THAT(detect_refusal(variables), HasSubstr("MASTER_PORT=65536"));
}

TEST(RankEnvironment, TwoLaunchersThatDisagreeAreRefused) {
  auto manual = torchrun_variables();
  manual.erase("TORCHELASTIC_RUN_ID");
  const auto slurm = detect_refusal(merged(slurm_variables(), manual));
  EXPECT_THAT(slurm, HasSubstr("RANK=5 of WORLD_SIZE=8, but SLURM_PROCID=6 of "
                               "SLURM_NTASKS=11"));
  EXPECT_THAT(detect_refusal(merged(mpirun_variables(), manual)),
              HasSubstr("OMPI_COMM_WORLD_RANK=2 of OMPI_COMM_WORLD_SIZE=4"));
}

TEST(RankEnvironment, TwoLaunchersThatAgreeAreFine) {
  auto manual = slurm_variables();
  manual["RANK"] = "6";
  manual["WORLD_SIZE"] = "11";
  manual["MASTER_ADDR"] = "gnode08";
  manual["MASTER_PORT"] = "29500";
  EXPECT_EQ(detect(manual).by, StartedBy::torchrun);
}

TEST(RankEnvironment, TorchrunInsideAnAllocationWins) {
  const auto found = detect(merged(slurm_variables(), torchrun_variables()));
  EXPECT_EQ(found.by, StartedBy::torchrun);
  EXPECT_EQ(found.rank, 5);
}

// Whatever stands in the variables: an environment that makes sense, or a config error.
TEST(RankEnvironment, HostileVariablesAreRefusedAndNothingElse) {
  const auto seed = merged(merged(torchrun_variables(), slurm_variables()),
                           merged(mpirun_variables(), {{"JSM_NAMESPACE_RANK", "0"},
                                                       {"JSM_NAMESPACE_SIZE", "1"}}));
  const std::vector<std::string> values = {"",
                                           "0",
                                           "1",
                                           "2",
                                           "7",
                                           "-1",
                                           "999999999",
                                           "1000000000",
                                           "x",
                                           "4(x2)",
                                           "4(x999999999)",
                                           "n[1-999999999]",
                                           "n[1-",
                                           "[",
                                           std::string(5000, '9'),
                                           std::string("\xff\x00\x1b", 3)};
  std::mt19937 random(7);
  int accepted = 0;
  for (int i = 0; i < 5000; ++i) {
    Variables variables;
    for (const auto& [name, value] : seed) {
      const auto dice = random() % 4;
      if (dice == 0) continue;
      variables[name] = dice == 1 ? values[random() % values.size()] : value;
    }
    const auto error = test::error_of([&] {
      const auto found = detect(variables);
      ++accepted;
      EXPECT_LT(found.rank, found.world_size);
      EXPECT_LT(found.local_rank, found.local_world_size);
      EXPECT_LE(found.local_world_size, found.world_size);
      EXPECT_LT(found.node, found.nodes);
      EXPECT_LE(found.master_port, 65535);
      EXPECT_TRUE(found.world_size == 1 || !found.master_address.empty());
    });
    if (error) {
      EXPECT_EQ(error->fault(), Fault::config) << error->what();
    }
  }
  EXPECT_GT(accepted, 0);
}

TEST(RankEnvironment, OfThisProcessIsRead) {
  const auto variables = run::process_variables();
  EXPECT_EQ(variables.at("PATH"), std::getenv("PATH"));
}

}  // namespace
}  // namespace lockstep
