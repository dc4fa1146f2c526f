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

// Returns what an expert asks first, and the reasons, on a few lines.
std::string choice_text(const std::string& model, const std::string& machine) {
  const auto batch = model == "resnet50" ? "1024" : "512";
  auto text = str(machine, " ", model, " batch.global=", batch, "\n");
  try {
    const auto plan = shipped_plan(model, machine, {{"batch.global", batch}});
    const auto& p = *plan.prediction;
    const auto& c = p.candidate;
    text += str("  ", planner::name_of(c.method), " over ", c.ranks, ", micro ",
                c.micro, " x ", c.accumulation, c.recompute ? ", recompute" : "",
                c.offload ? ", offload" : "", ", ",
                name_of(plan.config.config.precision.mode), "\n  ",
                planner::summary(plan), "; bottleneck: ", plan.bottleneck, "\n");
    for (const auto* key : {"parallel.strategy", "batch.micro",
                            "memory.recompute_every", "data.workers"}) {
      text += str("  ", key, ": ", because(plan, key), "\n");
    }
    for (const auto& note : plan.notes) text += str("  note: ", note, "\n");
  } catch (const Error& error) {
    text += str("  refused: ", error.what(), "\n");
  }
  return text + "\n";
}

}  // namespace

// Twelve machines that people have, four models: read each line as an expert would.
TEST(Golden, ChoicesForWellKnownMachinesAreTheRecordedOnes) {
  std::string text;
  for (const auto* machine :
       {"cpu-16", "1xrtx3090", "2xrtx4090", "2xrtx5090", "4xt4", "4xl4", "4xa10g",
        "8xv100", "8xa100-40", "8xa100-80", "8xh100", "dgx-b200"}) {
    for (const auto* model : {"resnet50", "gpt2-124m", "gpt2-774m", "gpt2-1.5b"}) {
      text += choice_text(model, machine);
    }
  }
  const auto path = fixture("planner/golden/choices.txt");
  if (std::getenv("LOCKSTEP_UPDATE_SNAPSHOTS") != nullptr) write_file(path, text);
  EXPECT_EQ(read_file(path), text);
}

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
  ASSERT_EQ(plan.scaling.size(), 3U);
  EXPECT_GT(plan.scaling[2].speed_up, 2);
}

}  // namespace lockstep::test
