// Machines by name, and what loading data costs.
#include "lockstep/planner/machine_grammar.h"
#include "lockstep/planner/rates.h"
#include "lockstep/planner/report.h"
#include "tests/planner/scenes.h"

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

namespace lockstep::test {
namespace {

std::string refused_machine(const std::string& name) {
  return error_text(Fault::config, [&] { planner::shipped_machine(name); });
}

}  // namespace

TEST(Grammar, AnyNumberOfAKnownGpuIsAMachine) {
  const auto one = planner::shipped_machine("1xrtx4090");
  ASSERT_EQ(one.gpus.size(), 1U);
  EXPECT_EQ(one.gpus[0].name, "NVIDIA GeForce RTX 4090");
  EXPECT_EQ(one.hostname, "1xrtx4090");
  const auto three = planner::shipped_machine("3xA100-40");
  ASSERT_EQ(three.gpus.size(), 3U);
  EXPECT_EQ(three.gpus[2].memory_total_bytes, std::int64_t{40} << 30);
  EXPECT_EQ(three.gpu_pairs.size(), 3U);
  EXPECT_EQ(three.gpu_pairs[0].nvlinks, 12);
  EXPECT_EQ(planner::shipped_machine("l40s").gpus.size(), 1U);
  const auto cpu = planner::shipped_machine("cpu-32");
  EXPECT_EQ(cpu.physical_cores, 32);
  EXPECT_THAT(cpu.gpus, IsEmpty());
}

// A machine that ships says more of its host than the grammar knows.
TEST(Grammar, AMachineThatShipsIsTaken) {
  EXPECT_EQ(planner::shipped_machine("8xa100-40").physical_cores, 48);
  EXPECT_EQ(planner::shipped_machine("dgx-h100").physical_cores, 112);
}

TEST(Grammar, EveryGpuHasADataSheet) {
  for (const auto& word : planner::grammar_gpus()) {
    const auto machine = planner::shipped_machine("1x" + word);
    EXPECT_TRUE(planner::find_sheet(machine.gpus[0].name)) << word;
  }
}

TEST(Grammar, HostsAreLinkedByANetwork) {
  const auto machine = planner::shipped_machine("2x(4xh100)");
  ASSERT_EQ(machine.gpus.size(), 8U);
  EXPECT_EQ(planner::gpu_link(machine, 4).source, "18 NVLinks");
  EXPECT_THAT(planner::gpu_link(machine, 8).source, HasSubstr("network"));
  const auto plan = shipped_plan("gpt2-355m", "2x(4xh100)", {{"batch.global", "512"}});
  EXPECT_EQ(plan.config.config.parallel.ranks.value(), 8);
  for (const auto& [prediction, lost] : plan.candidates) {
    const auto& c = prediction.candidate;
    if (c.method != planner::Method::data_parallel || c.ranks <= 4) continue;
    EXPECT_EQ(lost, "one process cannot span hosts");
  }
}

TEST(Grammar, NearNamesAreSuggested) {
  EXPECT_THAT(refused_machine("8xa100"),
              HasSubstr("several kinds of 'a100'; write 8xa100-80 or 8xa100-40"));
  for (const auto* word : {"2x4xh100", "2x(4xh100", "2x4xh100)"}) {
    EXPECT_THAT(refused_machine(word), HasSubstr("did you mean '2x(4xh100)'?"));
  }
  EXPECT_THAT(refused_machine("4xrtx409"), HasSubstr("did you mean '4xrtx4090'?"));
  EXPECT_THAT(refused_machine("dgx-h10"), HasSubstr("did you mean 'dgx-h100'?"));
  EXPECT_THAT(refused_machine("dgx-h10"), HasSubstr("2x(4xh100)"));
  EXPECT_THAT(refused_machine("900xh100"), HasSubstr("from 1 to 64"));
  EXPECT_THAT(refused_machine("0xh100"), HasSubstr("from 1 to 64"));
  EXPECT_THAT(refused_machine("cpu-9000"), HasSubstr("from 1 to 1024"));
  for (const auto* word : {"", "x", "2x(", "2x()", "(4xh100)x2", "cpu-", "cpu-x"}) {
    EXPECT_THAT(refused_machine(word), HasSubstr("known are")) << word;
  }
}

// 720 JPEGs a second and thread: three threads of a rank feed no B200.
TEST(Loading, ImagesForAFastGpuGetMoreThreads) {
  const auto plan = shipped_plan("resnet50", "dgx-b200", {{"batch.global", "2048"}});
  EXPECT_GT(plan.config.config.data.workers.value(), 3);
  EXPECT_THAT(because(plan, "data.workers"), HasSubstr("hides the loading of 256 "));
  EXPECT_DOUBLE_EQ(plan.prediction->time.data_wait, 0);
}

TEST(Loading, TooFewThreadsAreTheBottleneckAndThatIsSaid) {
  const auto plan = shipped_plan("resnet50", "dgx-b200",
                                 {{"batch.global", "2048"}, {"data.workers", "3"}});
  EXPECT_EQ(plan.bottleneck, "data loading");
  EXPECT_LT(plan.prediction->samples_per_second, 8 * 3 / 0.0014 * 1.01);
  EXPECT_THAT(plan.notes, Contains(HasSubstr("raise data.workers (now 3)")));
  const auto text =
      planner::report(plan, planner::shipped_machine("dgx-b200"), /*all=*/false);
  EXPECT_THAT(text, HasSubstr(" + data wait "));
}

TEST(Loading, AMachineWithFewCoresIsNamedAsTheCause) {
  auto machine = planner::shipped_machine("8xh100");
  machine.physical_cores = machine.logical_cores = 16;
  const auto plan =
      planner::resolve(config::defaults(Knobs{{"batch.global", "2048"}}, {}), machine,
                       {.model = planner::shipped_model("resnet50")});
  EXPECT_THAT(plan.notes[0], HasSubstr("of 8 GPUs: "));
  EXPECT_THAT(plan.notes[0], HasSubstr("data loading is the bottleneck"));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("data loading is the bottleneck: 12 ")));
  EXPECT_THAT(plan.notes, Contains(HasSubstr("more cores")));
}

TEST(Loading, MadeUpSamplesAndTokensCostNextToNothing) {
  const auto made_up = shipped_plan(
      "resnet50", "8xh100",
      {{"batch.global", "2048"}, {"data.name", "synthetic"}, {"data.shape", "[8]"}});
  EXPECT_EQ(made_up.config.config.data.workers.value(), 3);
  const auto tokens = shipped_plan("gpt2-124m", "8xh100", {{"batch.global", "512"}});
  EXPECT_DOUBLE_EQ(tokens.prediction->time.data_wait, 0);
}

}  // namespace lockstep::test
