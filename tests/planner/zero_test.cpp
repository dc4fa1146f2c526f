// zero in plans: its groups, its cost over gloo, and its reasons.
#include <array>

#include "lockstep/planner/machine_grammar.h"
#include "lockstep/planner/search.h"
#include "tests/planner/scenes.h"

using ::testing::HasSubstr;

namespace lockstep::test {
namespace {

using planner::Candidate;
using planner::Method;

planner::Plan zero_plan(const std::string& model, const std::string& machine,
                        Knobs knobs = {}) {
  knobs.push_back({"parallel.strategy", "zero"});
  return planner::resolve(config::defaults(knobs, {}),
                          planner::machine_by_grammar(machine).value(),
                          {.model = planner::shipped_model(model)});
}

int group_of(const planner::Plan& plan) {
  return plan.config.config.parallel.shard_group.value();
}

run::ModelDescription million() {
  run::ModelDescription model;
  model.name = "million";
  model.units = {{.name = "block", .count = 4, .num_parameters = 250'000}};
  return model;
}

// What one rank of four takes and how long an exchange is, with a million parameters.
struct CpuRanks {
  explicit CpuRanks(const std::string& backend)
      : config(config::defaults(Knobs{{"parallel.device", "cpu"},
                                      {"precision.mode", "fp32"},
                                      {"memory.host_limit", "1GiB"},
                                      {"parallel.bucket_bytes", "400000"},
                                      {"comm.backend", backend}},
                                {})
                   .config) {}

  planner::MemoryCost memory(Method method) const {
    return planner::memory_cost({config, machine, model, {}},
                                {.method = method, .ranks = 4});
  }
  double exchange(Method method) const {
    return planner::time_cost({config, machine, model, {}},
                              {.method = method, .ranks = 4})
        .exchange;
  }

  config::Config config;
  hardware::Machine machine = planner::machine_by_grammar("cpu-16").value();
  run::ModelDescription model = million();
};

}  // namespace

TEST(ZeroPlan, AGroupIsANode) {
  const auto two = zero_plan("gpt2-774m", "2x(4xh100)");
  EXPECT_EQ(two.config.config.parallel.ranks.value(), 8);
  EXPECT_EQ(group_of(two), 4);
  EXPECT_THAT(because(two, "parallel.shard_group"),
              HasSubstr("the 4 ranks of a node: "));
  const auto one = zero_plan("gpt2-774m", "4xh100");
  EXPECT_EQ(group_of(one), 4);
  EXPECT_EQ(because(one, "parallel.shard_group"), "all 4 ranks are on one node");
  const auto apart = zero_plan("gpt2-774m", "4x(1xh100)");
  EXPECT_EQ(group_of(apart), 4);
  EXPECT_EQ(because(apart, "parallel.shard_group"),
            "all ranks: a node has one of them");
  const auto rule = zero_plan("gpt2-774m", "2x(4xh100)", {{"planner.policy", "zero2"}});
  EXPECT_EQ(group_of(rule), 4);
}

// Of 1.5 billion parameters a rank has 15.6 GB at stage 2 over two, 10.9 over four.
TEST(ZeroPlan, AGroupIsAllRanksWhereANodeIsTooSmall) {
  for (const auto* policy : {"measured", "zero2"}) {
    const auto plan = zero_plan("gpt2-1.5b", "2x(2xv100-16)",
                                {{"planner.policy", policy},
                                 {"parallel.zero_stage", "2"},
                                 {"batch.micro", "1"}});
    EXPECT_EQ(group_of(plan), 4) << policy;
    EXPECT_THAT(because(plan, "parallel.shard_group"), HasSubstr("all ranks: "))
        << policy;
  }
}

TEST(ZeroPlan, AGroupThatWasAskedForIsKeptOrRefused) {
  EXPECT_EQ(
      group_of(zero_plan("gpt2-124m", "2x(4xh100)", {{"parallel.shard_group", "2"}})),
      2);
  const auto refused = error_text(Fault::config, [] {
    zero_plan("gpt2-124m", "2x(4xh100)",
              {{"parallel.shard_group", "3"}, {"parallel.ranks", "8"}});
  });
  EXPECT_THAT(refused,
              HasSubstr("parallel.shard_group: 8 ranks are not groups of 3: 8 = "
                        "2 x 3 + 2; set parallel.shard_group=2 or 4"));
  EXPECT_THAT(
      error_text(Fault::config,
                 [] {
                   zero_plan("gpt2-124m", "4xh100", {{"parallel.shard_group", "8"}});
                 }),
      HasSubstr("groups of 8, but there are 4 ranks; set "
                "parallel.shard_group=4"));
}

TEST(ZeroPlan, MemoryIsThatOfAGroupAndTimeHasTheSumOverThem) {
  const auto config = config::defaults(Knobs{{"parallel.device", "cuda"},
                                             {"precision.mode", "fp32"},
                                             {"parallel.bucket_bytes", "400000"}},
                                       {})
                          .config;
  const auto machine = planner::machine_by_grammar("2x(4xh100)").value();
  const auto model = million();
  const planner::CostInputs inputs{config, machine, model, {}};
  const Candidate all{.method = Method::zero3, .ranks = 8};
  auto grouped = all;
  grouped.shard_group = 4;
  EXPECT_DOUBLE_EQ(memory_cost(inputs, all).state(), 16e6 / 8);
  EXPECT_DOUBLE_EQ(memory_cost(inputs, grouped).state(), 16e6 / 4);
  EXPECT_LT(time_cost(inputs, grouped).exchange, time_cost(inputs, all).exchange);
  auto one_node = grouped;
  one_node.ranks = 4;
  EXPECT_GT(time_cost(inputs, grouped).exchange, time_cost(inputs, one_node).exchange);
}

// Only memory that ranks share is nobody's.
TEST(ZeroPlan, RanksOverGlooHoldWhatTheyHold) {
  const CpuRanks gloo("gloo");
  EXPECT_DOUBLE_EQ(gloo.memory(Method::ddp).state(), 16e6);
  EXPECT_DOUBLE_EQ(gloo.memory(Method::zero1).state(), 8e6 + 8e6 / 4);
  EXPECT_DOUBLE_EQ(gloo.memory(Method::zero3).state(), 16e6 / 4);
  const CpuRanks shared("shm");
  EXPECT_DOUBLE_EQ(shared.memory(Method::ddp).state(), 8e6 / 4);
  EXPECT_DOUBLE_EQ(shared.memory(Method::zero1).state(), 8e6 / 4);
  EXPECT_DOUBLE_EQ(shared.memory(Method::zero2).state(), 12e6 / 4);
  EXPECT_DOUBLE_EQ(shared.memory(Method::zero3).state(), 16e6 / 4);
  EXPECT_DOUBLE_EQ(
      gloo.memory(Method::zero2).buckets - shared.memory(Method::zero2).buckets,
      2 * 400'000);
}

TEST(ZeroPlan, AScatterOverGlooTakesAsLongAsAnAllReduce) {
  const CpuRanks gloo("gloo");
  EXPECT_NEAR(gloo.exchange(Method::zero1), 1.5 * gloo.exchange(Method::ddp), 1e-9);
  const CpuRanks shared("shm");
  EXPECT_NEAR(shared.exchange(Method::zero1), shared.exchange(Method::ddp), 1e-9);
  EXPECT_GT(gloo.exchange(Method::ddp), 2 * shared.exchange(Method::ddp));
}

TEST(ZeroPlan, AutoOverGlooIsDdp) {
  const auto plan = shipped_plan("gpt2-124m", "cpu-16",
                                 {{"comm.backend", "gloo"}, {"parallel.ranks", "4"}});
  EXPECT_EQ(plan.config.config.parallel.strategy, config::Strategy::ddp);
}

TEST(ZeroPlan, SaysWhatDdpWouldNeedAndWhatIsLeft) {
  const auto plan = shipped_plan("gpt2-1.5b", "4xl4", {{"parallel.strategy", "zero"}});
  EXPECT_THAT(
      because(plan, "parallel.zero_stage"),
      ::testing::MatchesRegex(
          "gpt2-1.5b in bf16 with adamw needs [0-9.]+ GiB a rank or more as ddp > "
          ".*; stage 2 over 4 ranks with micro-batches of [0-9]+.* needs "
          "[0-9.]+ GiB, .* to spare"));
}

// What the words are: 24 GB of state in fp32 do not fit into cards of 24 GB.
TEST(ZeroPlan, OfABillionAndAHalfSaysWhatEachStageTakes) {
  const auto plan =
      shipped_plan("gpt2-1.5b", "4xrtx4090", {{"precision.mode", "fp32"}});
  EXPECT_THAT(
      because(plan, "parallel.strategy"),
      ::testing::MatchesRegex(
          "gpt2-1.5b in fp32 with adamw needs 2[4-9].[0-9] GiB a rank or more "
          "as ddp > 0.8 x 24.0 GiB; stage [12] over 4 ranks with .* to spare.*"));
  const double parameters = 1.558e9;
  for (const auto& [prediction, lost] : plan.candidates) {
    const auto& c = prediction.candidate;
    if (c.ranks != 4 || planner::stage_of(c.method) == 0) continue;
    const double n = 4;
    const std::array bytes{0.0, 8 + 8 / n, 4 + 12 / n, 16 / n};
    EXPECT_NEAR(
        prediction.memory.state(),
        bytes.at(static_cast<std::size_t>(planner::stage_of(c.method))) * parameters,
        0.01 * 16 * parameters);
  }
}

// A smaller micro-batch or recomputing may make ddp fit: that is said, and its price.
TEST(ZeroPlan, SaysHowDdpWouldFitAndHowMuchSlowerItIs) {
  const auto plan =
      shipped_plan("gpt2-1.5b", "2xa100-40", {{"precision.mode", "bf16_params"}});
  EXPECT_THAT(because(plan, "parallel.strategy"),
              ::testing::MatchesRegex(
                  "gpt2-1.5b in bf16_params with adamw fits as ddp with micro-batches "
                  "of [0-9]+.*, [0-9.]+ % slower; stage 1 over 2 ranks .*"));
}

// One GPU has nothing to share; from two on the policy takes what it is named after.
TEST(ZeroPlan, PolicyZero2IsStageTwoFromTwoGpusOn) {
  for (const auto* machine : {"1xh100", "2xh100", "8xh100", "2x(4xh100)"}) {
    for (const auto* policy : {"zero2", "table"}) {
      const auto plan =
          shipped_plan("gpt2-124m", machine, {{"planner.policy", policy}});
      const auto& parallel = plan.config.config.parallel;
      if (parallel.ranks.value() == 1) {
        EXPECT_EQ(parallel.strategy, config::Strategy::single) << machine;
        continue;
      }
      EXPECT_EQ(parallel.strategy, config::Strategy::zero) << machine;
      EXPECT_EQ(parallel.zero_stage.value(), 2) << machine;
    }
  }
}

TEST(ZeroPlan, IsSingleOnOneGpuUnlessStageThreeHelps) {
  const auto one = shipped_plan("gpt2-124m", "1xl4", {});
  EXPECT_EQ(one.config.config.parallel.strategy, config::Strategy::single);
}

}  // namespace lockstep::test
