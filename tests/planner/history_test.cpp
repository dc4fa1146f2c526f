// What past runs teach.
#include "lockstep/planner/history.h"

#include "lockstep/planner/report.h"
#include "tests/planner/scenes.h"

using ::testing::HasSubstr;

namespace lockstep::test {
namespace {

planner::Past past(double time_ratio, double bytes = 1.5e9) {
  return {.model = "cnn",
          .device = "cpu",
          .date = "2026-11-15",
          .ranks = 2,
          .micro = 32,
          .predicted_seconds = 0.1,
          .measured_seconds = 0.1 * time_ratio,
          .predicted_bytes = 1e9,
          .measured_bytes = bytes};
}

}  // namespace

TEST(History, ReadsBackWhatItWrites) {
  const std::vector<planner::Past> runs{past(1.5), past(2)};
  EXPECT_EQ(to_json(planner::past_from_json(to_json(runs))), to_json(runs));
  for (const auto* damaged : {"", "{", "[]", "{\"format\":9,\"runs\":[]}",
                              "{\"format\":1,\"runs\":[{\"model\":3}]}"}) {
    EXPECT_TRUE(planner::past_from_json(damaged).empty()) << damaged;
  }
}

TEST(History, TheMedianCorrectsAndTheSpreadIsTheErrorBar) {
  const auto c =
      planner::estimate_correction({past(1.8), past(2), past(2.4)}, "cnn", "cpu");
  EXPECT_EQ(c.runs, 3);
  EXPECT_DOUBLE_EQ(c.time, 2);
  EXPECT_NEAR(c.time_spread, 0.2, 1e-9);
  EXPECT_DOUBLE_EQ(c.memory_bytes, 0.5e9) << "what a process has besides tensors";
  EXPECT_EQ(planner::estimate_correction({past(2)}, "mlp", "cpu").runs, 0);
  EXPECT_EQ(planner::estimate_correction({past(2)}, "cnn", "cuda").runs, 0);
}

TEST(History, FewRunsSayLittleOfTheNext) {
  const auto one = planner::estimate_correction({past(2)}, "cnn", "cpu");
  EXPECT_DOUBLE_EQ(one.time, 2);
  EXPECT_DOUBLE_EQ(one.time_spread, 0.25);
  EXPECT_DOUBLE_EQ(one.memory_spread, 0.1);
  // Pages of mapped files are no memory that a rank needs.
  const auto mapped = planner::estimate_correction({past(2, 90e9)}, "cnn", "cpu");
  EXPECT_DOUBLE_EQ(mapped.memory_bytes, 2.0 * (1 << 30));
}

TEST(History, NumbersThatMakeNoSenseCorrectNothing) {
  auto wild = past(1e6);
  wild.measured_bytes = 0;
  EXPECT_EQ(planner::estimate_correction({wild}, "cnn", "cpu").runs, 0);
  auto gpu = past(1, 1.1e9);
  gpu.device = "cuda";
  EXPECT_DOUBLE_EQ(planner::estimate_correction({gpu}, "cnn", "cuda").memory, 1.1)
      << "of tensors";
}

TEST(History, AHostThatLaunchesIsLearntApartFromAGpuThatComputes) {
  auto launching = past(3), computing = past(1.5);
  launching.device = computing.device = "cuda";
  launching.host_bound = true;
  const auto c = planner::estimate_correction({launching, computing}, "cnn", "cuda");
  EXPECT_DOUBLE_EQ(c.host_time, 3);
  EXPECT_DOUBLE_EQ(c.time, 1.5);
  EXPECT_EQ(c.runs, 2);
  const auto half = planner::estimate_correction({launching}, "cnn", "cuda");
  EXPECT_DOUBLE_EQ(half.time, 1);
  EXPECT_DOUBLE_EQ(half.time_spread, 0.25) << "what no run has told is not exact";
  std::vector<planner::Past> runs{launching};
  for (int i = 0; i < 20; ++i) planner::remember(runs, computing);
  EXPECT_EQ(runs.size(), 9U) << "neither drives the other out";
  EXPECT_TRUE(planner::past_from_json(to_json(runs))[0].host_bound);
}

TEST(History, KeepsTheLastFewOfAModel) {
  std::vector<planner::Past> runs;
  for (int i = 0; i < 20; ++i) planner::remember(runs, past(1 + i));
  EXPECT_EQ(runs.size(), 8U);
  EXPECT_DOUBLE_EQ(runs.back().measured_seconds, 0.1 * 20);
  EXPECT_DOUBLE_EQ(runs.front().measured_seconds, 0.1 * 13);
}

TEST(History, ProcessesAndCountedTensorsAreToldApart) {
  const auto kind = [](const Knobs& knobs, const std::string& machine) {
    return planner::kind_of_memory(config::defaults(knobs, {}).config,
                                   planner::shipped_machine(machine));
  };
  EXPECT_EQ(kind({}, "4xl4"), "cuda");
  EXPECT_EQ(kind({{"parallel.device", "cpu"}}, "4xl4"), "cpu");
  EXPECT_EQ(kind({}, "cpu-16"), "cpu");
  EXPECT_EQ(kind({{"memory.host_limit", "1GiB"}}, "cpu-16"), "cpu_tensors");
}

TEST(History, ACorrectedPlanShowsItsErrorBar) {
  planner::Knowledge knowledge{.model = planner::shipped_model("gpt2-124m")};
  knowledge.correction = {.time = 2, .time_spread = 0.25, .runs = 3};
  const auto machine = planner::shipped_machine("1xrtx3090");
  const auto plan = planner::resolve(
      config::defaults(Knobs{{"batch.global", "64"}}, {}), machine, knowledge);
  const auto plain = shipped_plan("gpt2-124m", "1xrtx3090", {{"batch.global", "64"}});
  EXPECT_GT(plan.prediction->time.step(), 1.9 * plain.prediction->time.step());
  EXPECT_THAT(planner::report(plan, machine, false),
              HasSubstr(" memory within 0 % of it: spread of 3 earlier runs"));
  EXPECT_THAT(planner::summary(plan), HasSubstr(" a step by 3 earlier runs)"));
}

TEST(PlanEnvironment, HoldsWhatIsNotSet) {
  const auto names = [](const planner::Plan& plan) {
    std::vector<std::string> list;
    for (const auto& variable : plan.environment) list.push_back(variable.name);
    return list;
  };
  const auto plan_with = [&](hardware::Machine machine, std::vector<std::string> set) {
    return planner::resolve(config::defaults({}, {}), machine,
                            {.set_variables = std::move(set)});
  };
  using ::testing::ElementsAre;
  auto machine = planner::shipped_machine("4xl4");
  EXPECT_THAT(names(plan_with(machine, {})),
              ElementsAre("OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF"));
  EXPECT_THAT(names(plan_with(machine, {"OMP_NUM_THREADS", "PYTORCH_CUDA_ALLOC_CONF"})),
              ElementsAre())
      << "the older name of the same";
  machine.network = {{.name = "eth0", .kind = "ethernet"}};
  machine.measured.emplace();
  machine.measured->pairs = {{.first = 0, .second = 1, .problem = "wrong bytes"}};
  EXPECT_THAT(names(plan_with(machine, {"OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF"})),
              ElementsAre("NCCL_P2P_DISABLE", "NCCL_IB_DISABLE"));
  machine.rdma_devices = {"mlx5_0"};  // RoCE, or InfiniBand without an interface
  EXPECT_THAT(names(plan_with(machine, {"OMP_NUM_THREADS", "PYTORCH_ALLOC_CONF"})),
              ElementsAre("NCCL_P2P_DISABLE"));
  EXPECT_THAT(names(plan_with(planner::shipped_machine("cpu-16"), {})),
              ElementsAre("OMP_NUM_THREADS"));
}

}  // namespace lockstep::test
