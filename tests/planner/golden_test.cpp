// Plans as people see them. After a wanted change:
//   LOCKSTEP_UPDATE_SNAPSHOTS=1 build/tests/test_planner --gtest_filter='Golden.*'
#include "lockstep/planner/report.h"
#include "tests/planner/scenes.h"

namespace lockstep::test {
namespace {

struct GoldenPlan {
  std::string file;
  std::string model;
  std::string machine;
  Knobs knobs;
};

const std::vector<GoldenPlan>& golden_plans() {
  static const std::vector<GoldenPlan> plans{
      {"4xl4_table_gpt2-124m", "gpt2-124m", "4xl4", {{"planner.policy", "table"}}},
      {"dgx-h100_gpt2-1.5b", "gpt2-1.5b", "dgx-h100", {{"batch.global", "512"}}},
      {"8xa100-80_gpt2-774m", "gpt2-774m", "8xa100-80", {{"batch.global", "512"}}},
      {"2xrtx4090_gpt2-355m", "gpt2-355m", "2xrtx4090", {{"batch.global", "64"}}},
      {"1xrtx3090_gpt2-124m", "gpt2-124m", "1xrtx3090", {{"batch.global", "64"}}},
      {"4xt4_simple_resnet50",
       "resnet50",
       "4xt4",
       {{"planner.policy", "simple"}, {"batch.global", "256"}}},
      {"8xv100_resnet50", "resnet50", "8xv100", {{"batch.global", "1024"}}},
      {"cpu-16_gpt2-124m", "gpt2-124m", "cpu-16", {{"batch.global", "8"}}},
  };
  return plans;
}

}  // namespace

TEST(Golden, PlansForWellKnownMachinesAreTheRecordedOnes) {
  for (const auto& [file, model, machine, knobs] : golden_plans()) {
    SCOPED_TRACE(file);
    const auto plan = shipped_plan(model, machine, knobs);
    const auto text =
        planner::report(plan, planner::shipped_machine(machine), /*all=*/false);
    const auto path = fixture("planner/golden/" + file + ".txt");
    if (std::getenv("LOCKSTEP_UPDATE_SNAPSHOTS") != nullptr) write_file(path, text);
    EXPECT_EQ(read_file(path), text);
  }
}

// The rules that people know by heart, apart from the rest of that plan.
TEST(Golden, FourL4ByTheTable) {
  const auto plan = shipped_plan("gpt2-124m", "4xl4", {{"planner.policy", "table"}});
  const auto& config = plan.config.config;
  EXPECT_EQ(config.batch.micro.value(), 16);
  EXPECT_EQ(config.batch.accumulation.value(), 4);
  EXPECT_EQ(config.batch.global.value(), 256);
  EXPECT_EQ(config.data.workers.value() * config.parallel.ranks.value(), 12);
  EXPECT_EQ(config.precision.mode, config::Precision::bf16);
  EXPECT_EQ(config.memory.recompute_every.value(), 1);
  EXPECT_EQ(config.parallel.strategy, config::Strategy::zero);
  EXPECT_EQ(config.parallel.zero_stage.value(), 2);
  EXPECT_EQ(because(plan, "parallel.strategy"), "policy zero2: 4 GPUs");
  ASSERT_EQ(plan.scaling.size(), 4U);
  EXPECT_GT(plan.scaling[2].speed_up, 2);
}

}  // namespace lockstep::test
