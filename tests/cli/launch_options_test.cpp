#include "lockstep/base/text.h"
#include "lockstep/hardware/machine.h"
#include "tests/cli/rig.h"

namespace lockstep {
namespace {

using test::lockstep_in_process;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

using Environment = std::vector<std::pair<std::string, std::string>>;

// Nothing is started: what `--dry-run` says about these options.
test::Outcome plan_launch(std::vector<std::string> words,
                          Environment environment = {}) {
  words.insert(words.begin(), {"launch", "--dry-run"});
  words.push_back("true");
  environment.emplace_back("PATH", "/usr/bin:/bin");
  return lockstep_in_process(words, environment);
}

// The error of options that are refused.
std::string launch_refusal(const std::vector<std::string>& words,
                           const Environment& environment = {}) {
  const auto outcome = plan_launch(words, environment);
  EXPECT_EQ(outcome.status, 2) << outcome.out;
  EXPECT_THAT(outcome.out, IsEmpty());
  return outcome.err;
}

std::string launch_plan(const std::vector<std::string>& words,
                        const Environment& environment = {}) {
  const auto outcome = plan_launch(words, environment);
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  return outcome.out;
}

// The last column of the table of ranks.
std::vector<std::string> terminals(const std::vector<std::string>& words) {
  std::vector<std::string> column;
  bool in_table = false;
  for (const auto& line : text::split(launch_plan(words), '\n')) {
    if (line.empty()) in_table = false;
    if (in_table) column.emplace_back(text::trim(line.substr(line.find("any") + 3)));
    if (text::starts_with(line, "RANK  ")) in_table = true;
  }
  return column;
}

TEST(LaunchOptions, ADryRunSaysWhatWouldBeStarted) {
  const auto plan = launch_plan({"--nnodes", "2", "--node-rank", "1", "--master-addr",
                                 "node0", "--nproc-per-node", "2", "--tee", "0:1"});
  EXPECT_THAT(plan, StartsWith("command  true\n"
                               "node     1 of 2, ranks 2 to 3 of 4\n"
                               "store    node0:29500\n"
                               "threads  OMP_NUM_THREADS="));
  EXPECT_THAT(plan, HasSubstr("RANK  LOCAL_RANK  THREADS  CPUS  TERMINAL\n"
                              "   2           0"));
  for (const auto* line :
       {"RANK=2\n", "WORLD_SIZE=4\n", "LOCAL_WORLD_SIZE=2\n", "GROUP_RANK=1\n",
        "MASTER_ADDR=node0\n", "MASTER_PORT=29500\n", "OMP_NUM_THREADS="}) {
    EXPECT_THAT(plan, HasSubstr(std::string("\n  ") + line));
  }
}

TEST(LaunchOptions, BothSpellingsAndTheEnvironmentMeanTheSame) {
  const auto dashes = launch_plan({"--nproc-per-node=2", "--rdzv-id", "x"});
  EXPECT_EQ(launch_plan({"--nproc_per_node", "2", "--rdzv_id=x"}), dashes);
  EXPECT_EQ(launch_plan({}, {{"PET_NPROC_PER_NODE", "2"}, {"PET_RDZV_ID", "x"}}),
            dashes);
  EXPECT_EQ(launch_plan({"--nproc-per-node", "2", "--rdzv-id", "x"},
                        {{"PET_NPROC_PER_NODE", "5"}, {"PET_RDZV_ID", "y"}}),
            dashes);
}

// What Kubeflow's TrainJob sets, and nothing else.
TEST(LaunchOptions, ATrainJobNeedsNoOptions) {
  const auto plan = launch_plan({}, {{"PET_NNODES", "3"},
                                     {"PET_NPROC_PER_NODE", "4"},
                                     {"PET_NODE_RANK", "2"},
                                     {"PET_MASTER_ADDR", "job-node-0-0.job"},
                                     {"PET_MASTER_PORT", "29400"}});
  EXPECT_THAT(plan, HasSubstr("node     2 of 3, ranks 8 to 11 of 12\n"
                              "store    job-node-0-0.job:29400\n"));
}

TEST(LaunchOptions, OneNodeFindsAPortByItself) {
  for (const std::vector<std::string>& words : std::vector<std::vector<std::string>>{
           {},
           {"--standalone"},
           {"--rdzv-backend", "c10d", "--rdzv-endpoint", "127.0.0.1:0"},
           {"--nnodes", "1:1"}}) {
    EXPECT_THAT(launch_plan(words), HasSubstr("store    127.0.0.1, a free port\n"));
  }
  EXPECT_THAT(launch_plan({"--standalone"}), HasSubstr("RUN_ID=standalone-"));
  EXPECT_THAT(launch_plan({"--master-port", "4000"}),
              HasSubstr("store    127.0.0.1:4000\n"));
}

TEST(LaunchOptions, EndpointsAreReadAsTorchrunDoes) {
  const auto store = [](const std::string& endpoint) {
    return launch_plan({"--rdzv-endpoint", endpoint});
  };
  EXPECT_THAT(store("h:1234"), HasSubstr("store    h:1234\n"));
  EXPECT_THAT(store("h"), HasSubstr("store    h:29400\n"));
  EXPECT_THAT(store("[fe80::1]:77"), HasSubstr("store    [fe80::1]:77\n"));
  EXPECT_THAT(store("fe80::1"), HasSubstr("store    [fe80::1]:29400\n"));
  for (const std::string bad : {":1", "h:x", "h:70000", "[::1", "[::1]x", "h:"}) {
    EXPECT_THAT(launch_refusal({"--rdzv-endpoint", bad}), HasSubstr("HOST:PORT"))
        << bad;
  }
  EXPECT_THAT(
      launch_refusal({"--rdzv-endpoint", "a:1", "--master-addr", "b"}),
      HasSubstr("--rdzv-endpoint a:1 and --master-addr b --master-port (none)"));
  // A cluster's default gives way to what was typed.
  EXPECT_THAT(lockstep_in_process({"launch", "-n", "--rdzv-endpoint", "a:1", "true"},
                                  {{"PATH", "/bin:/usr/bin"}, {"PET_MASTER_ADDR", "b"}})
                  .out,
              HasSubstr("store    a:1\n"));
}

TEST(LaunchOptions, TheNodeIsFoundOut) {
  const std::vector<std::string> two = {"--nnodes", "2", "--master-addr",
                                        "203.0.113.77"};
  const std::vector<std::string> three = {"--nnodes", "3", "--master-addr",
                                          "203.0.113.77"};
  // An address for examples: it is not this host.
  EXPECT_THAT(launch_plan(two), HasSubstr("node     1 of 2"));
  EXPECT_THAT(launch_refusal(three), HasSubstr("one of the nodes 1 to 2; give "));
  EXPECT_THAT(launch_plan(three, {{"JOB_COMPLETION_INDEX", "2"}}),
              HasSubstr("node     2 of 3"));
  const Environment slurm = {{"SLURM_STEP_ID", "0"},
                             {"SLURM_NNODES", "3"},
                             {"SLURM_NODEID", "1"},
                             {"SLURM_STEP_NODELIST", "n[07-09]"}};
  EXPECT_THAT(launch_plan(three, slurm), HasSubstr("node     1 of 3"));
  EXPECT_THAT(launch_plan({"--nnodes", "3"}, slurm), HasSubstr("store    n07:29500\n"));
  auto typed = three;
  typed.insert(typed.end(), {"--node-rank", "0"});
  EXPECT_THAT(launch_plan(typed, slurm), HasSubstr("node     0 of 3"));
  EXPECT_THAT(launch_plan(three, {{"PET_NODE_RANK", "2"}, {"SLURM_NODEID", "1"}}),
              HasSubstr("node     2 of 3"));
  // A shell on one node of an allocation says nothing about the others.
  EXPECT_THAT(
      launch_plan(
          two, {{"SLURM_STEP_ID", "0"}, {"SLURM_NNODES", "1"}, {"SLURM_NODEID", "0"}}),
      HasSubstr("node     1 of 2"));
  EXPECT_THAT(launch_refusal(three, {{"JOB_COMPLETION_INDEX", "3"}}),
              HasSubstr("JOB_COMPLETION_INDEX: '3' is not a node of 3 (0 to 2)"));
}

TEST(LaunchOptions, SeveralNodesNeedAPlaceToMeet) {
  EXPECT_THAT(launch_refusal({"--nnodes", "2"}), HasSubstr("give --master-addr HOST"));
  EXPECT_THAT(launch_refusal({"--nnodes", "2", "--master-addr", "127.0.0.1"}),
              HasSubstr("every host's own address; give --node-rank"));
  EXPECT_THAT(launch_refusal({"--nnodes", "2", "--master-addr", "h", "--master-port",
                              "0", "--node-rank", "0"}),
              HasSubstr("give the same port on all of them"));
  EXPECT_THAT(launch_refusal({"--nnodes", "2", "--standalone"}),
              HasSubstr("--standalone is for one node"));
}

TEST(LaunchOptions, AChangingNumberOfNodesIsTorchruns) {
  const auto outcome = lockstep_in_process(
      {"launch", "--nnodes", "1:2", "--nproc-per-node", "4", "--rdzv-endpoint",
       "n0:29400", "--rdzv-id", "job", "--", "./worker", "a b"});
  EXPECT_EQ(outcome.status, 2);
  EXPECT_THAT(outcome.err,
              HasSubstr("\n  torchrun --no-python --nnodes 1:2 --nproc-per-node 4 "
                        "--rdzv-backend c10d --rdzv-endpoint n0:29400 --rdzv-id job "
                        "--max-restarts 3 ./worker 'a b'\n"));
  EXPECT_THAT(lockstep_in_process({"launch", "--nnodes", "2:4", "train.py"}).err,
              HasSubstr("torchrun --nnodes 2:4"));
}

TEST(LaunchOptions, TheTerminalShowsWhatTorchrunsMasksSay) {
  const std::string both = "stdout, stderr";
  EXPECT_THAT(terminals({"--nproc-per-node", "2"}), ElementsAre(both, "-"));
  EXPECT_THAT(terminals({"--nproc-per-node", "2", "--tee", "3"}),
              ElementsAre(both, both));
  EXPECT_THAT(terminals({"--nproc-per-node", "2", "-r", "3"}), ElementsAre("-", "-"));
  EXPECT_THAT(terminals({"--nproc-per-node", "2", "-r", "0:1,1:3", "-t", "1:2"}),
              ElementsAre("stderr", "stderr"));
  EXPECT_THAT(terminals({"--nproc-per-node", "3", "--local-ranks-filter", "0,2"}),
              ElementsAre(both, "-", both));
  EXPECT_THAT(terminals({"--nproc-per-node", "2", "-t", "3", "--local_ranks_filter=1"}),
              ElementsAre("-", both));
}

TEST(LaunchOptions, WhatIsWrongIsNamedWithItsSource) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> wrong = {
      {{"--nproc-per-node", "0"}, "--nproc-per-node: '0'"},
      {{"--nproc-per-node", "atuo"}, "did you mean 'auto'?"},
      {{"--nproc-per-node", "99999"}, "from 1 to 4096"},
      {{"--nnodes", "x"}, "--nnodes: 'x' is not a number of nodes"},
      {{"--nnodes", "1:2:3"}, "--nnodes"},
      {{"--nnodes", "0"}, "--nnodes"},
      {{"--node-rank", "1"}, "--node-rank: '1' is not a node of 1"},
      {{"--master-port", "70000"}, "--master-port: '70000'"},
      {{"--master-port", "65536"}, "65536 is not a TCP port"},
      {{"--rdzv-backend", "etcd-v2"}, "'etcd-v2' needs an etcd server"},
      {{"--rdzv-backend", "c10"}, "did you mean 'c10d'?"},
      {{"--max-restarts", "-1"}, "--max-restarts: '-1'"},
      {{"--monitor-interval", "0"}, "--monitor-interval: '0'"},
      {{"--grace-period", "0"}, "--grace-period: '0'"},
      {{"--grace-period", "25h"}, "write 24h or less"},
      {{"--binding", "socket"}, "--binding: 'socket' is not one of none, numa, cores"},
      {{"--numa-binding", "socket"}, "--numa-binding: 'socket' is not supported"},
      {{"--tee", "4"}, "--tee: '4' is not a mask"},
      {{"--tee", "0:1,3"}, "is not a mask"},
      {{"--redirects", "1:3"}, "'1' is not a local rank (0 to 0)"},
      {{"--local-ranks-filter", "0,1"}, "'1' is not a local rank (0 to 0)"},
      {{"--signals-to-handle", "SIGTERM,SIGKILL"}, "'SIGKILL' is not one"},
      {{"--npoc-per-node", "2"}, "did you mean '--nproc-per-node'?"},
      {{"--nproc_per_nod", "2"}, "did you mean '--nproc-per-node'?"},
      {{"--run-path"}, "give the file as the program"},
      {{"--virtual_local_rank"}, "choose the device by LOCAL_RANK"},
      {{"--logs-specs", "x"}, "names a Python plugin"},
  };
  for (const auto& [words, part] : wrong) {
    EXPECT_THAT(launch_refusal(words), HasSubstr(part)) << words[0];
  }
  EXPECT_THAT(launch_refusal({}, {{"PET_NNODES", "x"}}), HasSubstr("PET_NNODES: 'x'"));
  EXPECT_THAT(launch_refusal({}, {{"PET_STANDALONE", "yes"}}),
              HasSubstr("PET_STANDALONE: 'yes' is neither 0 nor 1"));
  EXPECT_THAT(launch_refusal({}, {{"PET_VIRTUAL_LOCAL_RANK", "1"}}),
              HasSubstr("PET_VIRTUAL_LOCAL_RANK=1"));
}

TEST(LaunchOptions, WhatHasNoEffectIsTaken) {
  const auto plan =
      launch_plan({"--no-python", "--start-method", "fork", "--signals-to-handle",
                   "SIGTERM,SIGUSR1", "--rdzv-conf", "timeout=900"});
  EXPECT_THAT(plan, HasSubstr("note     --rdzv-conf has no effect"));
}

TEST(LaunchOptions, CpuMeansOneRankForEach) {
  const auto plan = launch_plan({"--nproc-per-node", "cpu"});
  const auto cpus = hardware::detect().logical_cores;
  EXPECT_THAT(plan, HasSubstr("--nproc-per-node cpu is " + std::to_string(cpus)));
  EXPECT_THAT(plan, HasSubstr("WORLD_SIZE=" + std::to_string(cpus) + "\n"));
}

}  // namespace
}  // namespace lockstep
