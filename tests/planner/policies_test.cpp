// planner.policy: the rules, and what becomes of them in a plan.
#include "lockstep/planner/policies.h"

#include "tests/planner/scenes.h"

using ::testing::HasSubstr;

namespace lockstep::test {
namespace {

using planner::Method;

constexpr std::int64_t kGb = 1'000'000'000;

Method method_of(planner::Preference (*policy)(const planner::Facts&), int devices,
                 const config::PlannerConfig& knobs = {}) {
  return policy({.devices = devices, .knobs = knobs}).method.value();
}

config::Config planned(const std::string& machine, const Knobs& knobs,
                       const std::string& model = "gpt2-124m") {
  return shipped_plan(model, machine, knobs).config.config;
}

std::string not_planned(const std::string& model, const std::string& machine,
                        const Knobs& knobs) {
  return error_text(Fault::hardware, [&] { shipped_plan(model, machine, knobs); });
}

}  // namespace

TEST(Policy, SimpleCountsGpus) {
  const auto at = [](int n) { return method_of(planner::simple_policy, n); };
  EXPECT_EQ(at(0), Method::single);
  EXPECT_EQ(at(1), Method::single);
  for (const int n : {2, 3, 4}) EXPECT_EQ(at(n), Method::data_parallel) << n;
  for (const int n : {5, 8}) EXPECT_EQ(at(n), Method::ddp) << n;
}

TEST(Policy, FlagsFollowsItsTwoKnobs) {
  const auto at = [](int n, bool distributed, bool data_parallel) {
    config::PlannerConfig knobs;
    knobs.enable_distributed = distributed;
    knobs.enable_data_parallel = data_parallel;
    return method_of(planner::flags_policy, n, knobs);
  };
  EXPECT_EQ(at(0, true, true), Method::single);
  EXPECT_EQ(at(1, true, true), Method::single);
  EXPECT_EQ(at(2, true, true), Method::ddp);
  EXPECT_EQ(at(2, true, false), Method::ddp);
  EXPECT_EQ(at(8, false, true), Method::data_parallel);
  EXPECT_EQ(at(8, false, false), Method::single);
}

TEST(Policy, Zero2IsZeroFromTwoGpusOn) {
  EXPECT_EQ(method_of(planner::zero2_policy, 1), Method::single);
  const auto preference = planner::zero2_policy({.devices = 2});
  EXPECT_EQ(preference.method, Method::zero2);
  EXPECT_EQ(preference.method_because, "policy zero2: 2 GPUs");
  const auto config = planned("4xl4", {{"planner.policy", "zero2"}});
  EXPECT_EQ(config.parallel.strategy, config::Strategy::zero);
  EXPECT_EQ(config.parallel.zero_stage.value(), 2);
}

TEST(Policy, ZeroByNameIsItsStageTwo) {
  const auto config = planned("4xl4", {{"parallel.strategy", "zero"}});
  EXPECT_EQ(config.parallel.zero_stage.value(), 2);
  EXPECT_EQ(config.parallel.ranks.value(), 4);
  const auto one =
      planned("4xl4", {{"parallel.strategy", "zero"}, {"parallel.zero_stage", "1"}});
  EXPECT_EQ(one.parallel.zero_stage.value(), 1);
}

TEST(Policy, TheTableGoesByTheMemoryOfAGpu) {
  const auto row = [](double gigabytes) {
    const auto [least, micro, accumulation] =
        planner::table_row(static_cast<std::int64_t>(gigabytes * kGb));
    return std::pair(micro, accumulation);
  };
  using Row = std::pair<std::int64_t, std::int64_t>;
  EXPECT_EQ(row(80), Row(16, 4));
  EXPECT_EQ(row(20), Row(16, 4));
  EXPECT_EQ(row(19.9), Row(12, 5));
  EXPECT_EQ(row(14), Row(12, 5));
  EXPECT_EQ(row(13.9), Row(8, 8));
  EXPECT_EQ(row(10), Row(8, 8));
  EXPECT_EQ(row(9.9), Row(4, 16));
  EXPECT_EQ(row(6), Row(4, 16));
  EXPECT_EQ(row(5.9), Row(2, 32));
  EXPECT_EQ(row(0), Row(2, 32));
}

TEST(Policy, APlanFollowsIt) {
  EXPECT_EQ(planned("4xl4", {{"planner.policy", "simple"}}).parallel.strategy,
            config::Strategy::data_parallel);
  EXPECT_EQ(planned("8xh100", {{"planner.policy", "simple"}}).parallel.strategy,
            config::Strategy::ddp);
  const auto alone = planned("4xl4", {{"planner.policy", "flags"},
                                      {"planner.enable_distributed", "false"},
                                      {"planner.enable_data_parallel", "false"}});
  EXPECT_EQ(alone.parallel.strategy, config::Strategy::single);
  EXPECT_EQ(alone.parallel.ranks.value(), 1);
  EXPECT_EQ(planned("4xt4", {{"planner.policy", "table"}}).batch.accumulation.value(),
            5);
  EXPECT_EQ(planned("cpu-16", {{"planner.policy", "table"}}).parallel.device,
            config::Device::cpu);
}

TEST(Policy, NeedsNoModelButForPredictions) {
  for (const auto* policy : {"measured", "table", "simple", "flags", "zero2"}) {
    const auto plan = planner::resolve(
        config::defaults(Knobs{{"planner.policy", policy}}, {}),
        planner::shipped_machine("4xl4"), {.no_model = "it is somebody's own"});
    EXPECT_EQ(plan.config.config.parallel.ranks.value(), 4) << policy;
    EXPECT_FALSE(plan.prediction) << policy;
    EXPECT_THAT(plan.notes,
                ::testing::ElementsAre("no prediction: it is somebody's own"));
  }
}

TEST(Policy, WhatIsNamedIsKept) {
  const Knobs ddp{{"planner.policy", "simple"}, {"parallel.strategy", "ddp"}};
  EXPECT_EQ(planned("2xrtx4090", ddp).parallel.strategy, config::Strategy::ddp);
  const Knobs two{{"planner.policy", "simple"}, {"parallel.ranks", "2"}};
  EXPECT_EQ(planned("8xh100", two).parallel.strategy, config::Strategy::data_parallel);
  const Knobs batch{{"planner.policy", "table"}, {"batch.global", "40"}};
  const auto config = planned("4xl4", batch);
  EXPECT_EQ(config.batch.global.value(), 40);
  EXPECT_EQ(config.batch.micro.value(), 10) << "the share of a rank, less than 16";
  const Knobs kept{{"planner.policy", "table"}, {"memory.recompute_every", "0"}};
  EXPECT_EQ(planned("4xl4", kept).memory.recompute_every.value(), 0);
  const Knobs gloo{{"planner.policy", "simple"}, {"comm.backend", "gloo"}};
  EXPECT_EQ(planned("4xl4", gloo).parallel.strategy, config::Strategy::ddp)
      << "threads need no gloo";
}

TEST(Measured, TakesTheFastestThatFits) {
  const auto plan = shipped_plan("gpt2-355m", "8xa100-80", {{"batch.global", "512"}});
  ASSERT_TRUE(plan.prediction);
  EXPECT_EQ(plan.candidates[0].lost, "");
  for (const auto& [prediction, lost] : plan.candidates) {
    if (!prediction.fits()) continue;
    // Shards are taken for a gain of a twentieth, or for memory.
    const double worth = stage_of(prediction.candidate.method) > 0 ? 0.95 : 1;
    EXPECT_LE(worth * prediction.samples_per_second,
              plan.prediction->samples_per_second * 1.001);
  }
  EXPECT_EQ(plan.config.config.parallel.strategy, config::Strategy::ddp);
  EXPECT_THAT(because(plan, "parallel.strategy"), HasSubstr("the fastest of"));
}

TEST(Measured, RecomputesWhereActivationsWouldNotFit) {
  // 774M with AdamW is 12 GiB of state, and activations of 16 samples are 29 more.
  const auto plan = shipped_plan("gpt2-774m", "8xa100-40",
                                 {{"batch.global", "128"}, {"batch.micro", "16"}});
  EXPECT_EQ(plan.config.config.memory.recompute_every.value(), 1);
  EXPECT_THAT(because(plan, "memory.recompute_every"), HasSubstr("without it 4"));
  EXPECT_THAT(because(plan, "memory.recompute_every"), HasSubstr("> 0.9 x 40.0 GiB"));
}

TEST(Measured, SmallBatchesAreLeftToFewGpus) {
  auto model = planner::shipped_model("gpt2-124m");
  for (auto& unit : model.units) {
    unit.forward_flops = 1e6;
    unit.kept = {};
  }
  const auto plan =
      planner::resolve(config::defaults(Knobs{{"batch.global", "8"}}, {}),
                       planner::shipped_machine("4xl4"), {.model = model});
  EXPECT_EQ(plan.config.config.parallel.strategy, config::Strategy::single)
      << "sending the gradients would take longer than computing them";
}

TEST(Measured, ABatchThatDoesNotDivideGoesToFewerGpus) {
  EXPECT_EQ(planned("8xh100", {{"batch.global", "100"}}).parallel.ranks.value(), 5);
}

TEST(Measured, AStrategyByNameIsRefusedWithTheArithmetic) {
  const auto text = not_planned("gpt2-1.5b", "4xl4",
                                {{"batch.global", "64"}, {"parallel.strategy", "ddp"}});
  EXPECT_THAT(text, HasSubstr("parallel.strategy: ddp of gpt2-1.5b"));
  EXPECT_THAT(text, HasSubstr("a rank > 0.8 x 22.5 GiB = 18.0 GiB"));
  EXPECT_THAT(text, HasSubstr("parameters 5.8 GiB + gradients 5.8 GiB + optimizer"));
  EXPECT_THAT(text, HasSubstr("what would fit: zero"));
  EXPECT_THAT(text, HasSubstr(" over 4 ranks"));
}

TEST(Measured, ShardsAreTakenWhereTheWholeStateDoesNotFit) {
  const auto plan = shipped_plan("gpt2-1.5b", "4xl4", {{"batch.global", "64"}});
  EXPECT_EQ(plan.config.config.parallel.strategy, config::Strategy::zero);
  EXPECT_EQ(plan.config.config.parallel.ranks.value(), 4);
  EXPECT_TRUE(plan.prediction->fits());
}

TEST(Measured, WhereNothingFitsThatIsSaid) {
  EXPECT_THAT(not_planned("gpt2-1.5b", "1xrtx3090", {}),
              HasSubstr("nothing fits on this machine"));
}

TEST(Policy, WhatCanNotFitIsRefusedByAll) {
  for (const auto* policy : {"measured", "table", "simple", "flags", "zero2"}) {
    SCOPED_TRACE(policy);
    const auto text =
        not_planned("gpt2-1.5b", "4xl4",
                    {{"planner.policy", policy}, {"parallel.strategy", "ddp"}});
    EXPECT_THAT(text, HasSubstr(" x 22.5 GiB = "));
    EXPECT_THAT(text, HasSubstr("; 23.2 GiB of it do not depend on the batch"));
    EXPECT_THAT(text, HasSubstr("what would fit: zero"));
  }
  const auto one = not_planned("gpt2-1.5b", "1xrtx3090", {{"planner.policy", "table"}});
  EXPECT_THAT(one, HasSubstr("nothing fits on this machine"));
}

TEST(Measured, ANamedMicroBatchThatWillHardlyFitIsKeptAndNoted) {
  const auto plan = shipped_plan(
      "gpt2-124m", "1xrtx3090",
      {{"batch.global", "64"}, {"batch.micro", "64"}, {"planner.policy", "simple"}});
  EXPECT_EQ(plan.config.config.batch.micro.value(), 64);
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_THAT(plan.notes[0], HasSubstr("> 0.9 x 24.0 GiB"));
  EXPECT_THAT(plan.notes[0], HasSubstr("smaller micro-batches"));
}

TEST(Plan, SmallerPiecesAreNotPromisedWhereTheyDoNotHelp) {
  auto machine = planner::shipped_machine("1xrtx3090");
  machine.gpus[0].memory_total_bytes = 3 * kGb;
  const auto plan = planner::resolve(config::defaults({}, {}), machine,
                                     {.model = planner::shipped_model("gpt2-124m")});
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_THAT(plan.notes[0], HasSubstr("; one sample at a time needs "));
  EXPECT_THAT(plan.notes[0], Not(HasSubstr("smaller micro-batches")));
}

// Ranks that wait for each other within a pass can not try again, either.
TEST(Plan, ReasonsAgreeWithTheArithmetic) {
  const auto plan = shipped_plan("resnet50", "4xt4",
                                 {{"batch.micro", "4096"},
                                  {"batch.global", "16384"},
                                  {"parallel.sync_batch_norm", "true"}});
  EXPECT_EQ(because(plan, "memory.recompute_every"),
            "parallel.sync_batch_norm does not allow activation checkpointing");
  EXPECT_THAT(because(plan, "memory.offload"), HasSubstr("it needs "));
  EXPECT_THAT(because(plan, "memory.offload"), HasSubstr(" of the host > 0.5 x "));
  ASSERT_EQ(plan.notes.size(), 1U);
  EXPECT_THAT(plan.notes[0], HasSubstr("it may run out of memory: lower batch.micro"));
}

TEST(Measured, AmongEquallyFastOnesTheLargestMicroBatchIsTaken) {
  const auto plan = shipped_plan("gpt2-124m", "cpu-16");
  const auto& batch = plan.config.config.batch;
  EXPECT_GT(batch.micro.value(), 1);
  for (const auto& [prediction, lost] : plan.candidates) {
    const auto& c = prediction.candidate;
    if (c.micro <= batch.micro.value() || !prediction.fits()) continue;
    EXPECT_LT(prediction.samples_per_second,
              0.999 * plan.prediction->samples_per_second)
        << "micro-batches of " << c.micro << " are as fast";
  }
  EXPECT_EQ(because(plan, "memory.find_micro"),
            "CPU memory has no limit to search against; memory.host_limit sets one");
}

TEST(Measured, FewerBatchesWaitWhereTheHostIsSmall) {
  auto machine = planner::shipped_machine("cpu-16");
  auto model = planner::shipped_model("gpt2-124m");
  model.sample_bytes = 100 << 20;
  const auto plan = planner::resolve(
      config::defaults(Knobs{{"batch.global", "32"}}, {}), machine, {.model = model});
  EXPECT_EQ(plan.config.config.data.prefetch.value(), 2);
  EXPECT_THAT(because(plan, "data.prefetch"), HasSubstr("a tenth of 64.0 GiB"));
  model.sample_bytes = std::int64_t{1} << 62;
  const auto absurd = planner::resolve(
      config::defaults(Knobs{{"batch.global", "32"}}, {}), machine, {.model = model});
  EXPECT_EQ(absurd.config.config.data.prefetch.value(), 1);
}

TEST(Measured, AnEvaluationTakesNoMoreThanAStep) {
  EXPECT_LT(planned("1xrtx3090", {{"batch.global", "64"}}).batch.eval.value(), 1024);
}

// A small card drives the screen, two others compute.
hardware::Machine with_a_small_card() {
  auto machine = planner::shipped_machine("4xl4");
  machine.gpus.resize(3);
  machine.gpus[0].name = "Quadro P400";
  machine.gpus[0].memory_total_bytes = 4 * kGb;
  machine.gpus[0].compute_major = 6;
  machine.gpus[0].compute_minor = 1;
  return machine;
}

planner::Plan plan_on(const hardware::Machine& machine, const Knobs& knobs,
                      const std::string& model = "gpt2-124m") {
  return planner::resolve(config::defaults(knobs, {}), machine,
                          {.model = planner::shipped_model(model)});
}

TEST(Plan, GpusThatAreNamedDecideAndNoOthers) {
  const auto plan = plan_on(
      with_a_small_card(),
      {{"parallel.device_ids", "[1,2]"}, {"parallel.strategy", "data_parallel"}});
  EXPECT_EQ(plan.config.config.precision.mode, config::Precision::bf16);
  EXPECT_EQ(plan.config.config.parallel.ranks.value(), 2);
  EXPECT_THAT(because(plan, "batch.micro"), HasSubstr("<= 0.8 x 22.5 GiB"));
  const auto all = plan_on(with_a_small_card(), {{"parallel.ranks", "3"}});
  EXPECT_EQ(all.config.config.precision.mode, config::Precision::fp32)
      << "the weakest computes, too";
}

TEST(Plan, AnyNumberOfGpusGetsABatchThatDivides) {
  for (const int gpus : {3, 5, 6, 7}) {
    auto machine = planner::shipped_machine("8xa100-80");
    machine.gpus.resize(static_cast<std::size_t>(gpus));
    machine.gpu_pairs.clear();
    for (const auto* policy : {"measured", "simple", "zero2"}) {
      const auto config = plan_on(machine, {{"planner.policy", policy}}).config.config;
      EXPECT_EQ(config.parallel.ranks.value(), gpus) << policy;
      EXPECT_EQ(config.batch.global.value() % gpus, 0) << policy;
    }
  }
  const auto config = planned("dgx-h100", {{"batch.micro", "32"}});
  EXPECT_EQ(config.parallel.ranks.value(), 8);
  EXPECT_EQ(config.batch.global.value(), 8 * 32);
}

TEST(Plan, MemoryThatOthersUseIsNotOurs) {
  auto machine = planner::shipped_machine("4xl4");
  machine.gpus[2].status.memory_free_bytes = 15 * kGb;
  const auto plan = plan_on(machine, {{"parallel.ranks", "4"}});
  EXPECT_THAT(because(plan, "batch.micro"), HasSubstr("that are free of 22.5 GiB"));
}

TEST(Plan, OffloadingNeedsAHostThatHasTheMemory) {
  const Knobs knobs{{"batch.micro", "1024"}, {"batch.accumulation", "1"}};
  auto machine = planner::shipped_machine("4xl4");
  EXPECT_TRUE(plan_on(machine, knobs, "resnet50").config.config.memory.offload.value());
  machine.memory_total_bytes = machine.memory_available_bytes = 2 * kGb;
  const auto plan = plan_on(machine, knobs, "resnet50");
  EXPECT_FALSE(plan.config.config.memory.offload.value());
  EXPECT_THAT(because(plan, "memory.offload"),
              HasSubstr(" of the host > 0.5 x 1.9 GiB"));
}

TEST(Plan, OffloadingByNameIsRefusedWhereTheHostIsTooSmall) {
  auto machine = planner::shipped_machine("4xl4");
  machine.memory_total_bytes = machine.memory_available_bytes = kGb / 10;
  const Knobs knobs{{"memory.offload", "true"}, {"batch.micro", "256"}};
  const auto text =
      error_text(Fault::hardware, [&] { plan_on(machine, knobs, "resnet50"); });
  EXPECT_THAT(text, HasSubstr("memory.offload: true, but "));
  EXPECT_THAT(text, HasSubstr(" of the host > 0.5 x 95.4 MiB; lower batch.micro"));
}

TEST(Plan, WhatIsOnlyPredictedIsNoReasonToRefuse) {
  auto machine = planner::shipped_machine("1xrtx3090");
  machine.gpus[0].memory_total_bytes = 3 * kGb;  // the state alone is 1.9 GiB
  const auto plan = plan_on(machine, {});
  EXPECT_EQ(plan.config.config.batch.micro.value(), 1);
  EXPECT_THAT(because(plan, "batch.micro"), HasSubstr("tried anyway"));
  machine.gpus[0].memory_total_bytes = 1 * kGb;
  EXPECT_THAT(error_text(Fault::hardware, [&] { plan_on(machine, {}); }),
              HasSubstr("nothing fits on this machine"));
}

TEST(Policy, FlagsDoNotOverrideAStrategyByName) {
  const auto config = planned("dgx-h100", {{"planner.policy", "flags"},
                                           {"planner.enable_distributed", "false"},
                                           {"planner.enable_data_parallel", "false"},
                                           {"parallel.strategy", "ddp"}});
  EXPECT_EQ(config.parallel.ranks.value(), 8);
}

}  // namespace lockstep::test
