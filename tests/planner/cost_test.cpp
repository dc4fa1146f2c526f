// The arithmetic of predictions, by hand.
#include "lockstep/planner/cost.h"

#include "lockstep/planner/rates.h"
#include "tests/planner/scenes.h"

using ::testing::HasSubstr;

namespace lockstep::test {
namespace {

using planner::Candidate;
using planner::Method;

constexpr double kMillion = 1e6;

// A million parameters in four blocks that keep a kilobyte of a sample each.
run::ModelDescription small_model() {
  run::ModelDescription model;
  model.name = "small";
  run::ModelUnit block{.name = "block", .count = 4, .num_parameters = 250'000};
  block.forward_flops = 1e9;
  block.kept.fp32 = {1024, 0};
  block.kept.half = {512, 500'000};
  block.num_inputs = 16;
  block.recomputable = true;
  model.units = {block};
  return model;
}

config::Config settled(const Knobs& knobs) {
  return config::defaults(knobs, {}).config;
}

struct World {
  config::Config config;
  hardware::Machine machine = planner::shipped_machine("8xa100-80");
  run::ModelDescription model = small_model();

  planner::MemoryCost memory(const Candidate& candidate) const {
    return memory_cost({config, machine, model, {}}, candidate);
  }
  planner::TimeCost time(const Candidate& candidate) const {
    return time_cost({config, machine, model, {}}, candidate);
  }
};

World world_of(Knobs base, const Knobs& more) {
  base.insert(base.end(), more.begin(), more.end());
  return {settled(base)};
}

World on_gpu(const Knobs& more = {}) {
  return world_of({{"parallel.device", "cuda"}, {"precision.mode", "fp32"}}, more);
}

World on_cpu(const Knobs& more = {}) {
  return world_of({{"parallel.device", "cpu"}, {"precision.mode", "fp32"}}, more);
}

}  // namespace

TEST(MemoryCost, StateFollowsPrecisionAndOptimizer) {
  const auto adam = on_gpu().memory({});
  EXPECT_DOUBLE_EQ(adam.parameters, 4 * kMillion);
  EXPECT_DOUBLE_EQ(adam.gradients, 4 * kMillion);
  EXPECT_DOUBLE_EQ(adam.optimizer, 8 * kMillion);
  EXPECT_DOUBLE_EQ(adam.master, 0);
  EXPECT_DOUBLE_EQ(on_gpu({{"optim.name", "sgd"}}).memory({}).optimizer, 4 * kMillion);
  EXPECT_DOUBLE_EQ(
      on_gpu({{"optim.name", "sgd"}, {"optim.momentum", "0"}}).memory({}).optimizer, 0);
  EXPECT_DOUBLE_EQ(on_gpu({{"ema.enabled", "true"}}).memory({}).average, 4 * kMillion);
  for (const auto* mode : {"bf16_params", "fp16_params"}) {
    const auto small = on_gpu({{"precision.mode", mode}}).memory({});
    EXPECT_DOUBLE_EQ(small.parameters, 2 * kMillion) << mode;
    EXPECT_DOUBLE_EQ(small.gradients, 2 * kMillion) << mode;
    EXPECT_DOUBLE_EQ(small.optimizer, 8 * kMillion) << mode;
    EXPECT_DOUBLE_EQ(small.master, 4 * kMillion) << mode;
  }
  EXPECT_DOUBLE_EQ(on_gpu({{"precision.mode", "fp64"}}).memory({}).parameters,
                   8 * kMillion);
}

TEST(MemoryCost, EachStageShardsWhatItsNameSays) {
  const auto world = on_gpu();
  const auto at = [&](Method method) {
    return world.memory({.method = method, .ranks = 4});
  };
  EXPECT_DOUBLE_EQ(at(Method::ddp).optimizer, 8 * kMillion);
  EXPECT_DOUBLE_EQ(at(Method::zero1).optimizer, 2 * kMillion);
  EXPECT_DOUBLE_EQ(at(Method::zero1).gradients, 4 * kMillion);
  EXPECT_DOUBLE_EQ(at(Method::zero2).gradients, kMillion);
  EXPECT_DOUBLE_EQ(at(Method::zero2).parameters, 4 * kMillion);
  EXPECT_DOUBLE_EQ(at(Method::zero3).parameters, kMillion);
  EXPECT_GE(at(Method::zero3).buckets, 2 * 4 * 250'000) << "two gathered blocks";
}

TEST(MemoryCost, ActivationsGrowWithTheMicroBatchOnly) {
  const auto world = on_gpu();
  EXPECT_DOUBLE_EQ(world.memory({.micro = 8}).activations, 4 * 8 * 1024);
  EXPECT_DOUBLE_EQ(world.memory({.micro = 8, .accumulation = 7}).activations,
                   4 * 8 * 1024);
  const auto half = on_gpu({{"precision.mode", "bf16"}});
  EXPECT_DOUBLE_EQ(half.memory({.micro = 8}).activations, 4 * (8 * 512 + 500'000));
}

TEST(MemoryCost, RecomputingKeepsInputsAndOneBlock) {
  const auto world = on_gpu();
  const auto cost = world.memory({.micro = 8, .recompute = true});
  EXPECT_DOUBLE_EQ(cost.activations, 4 * 8 * 16 * 4 + 8 * 1024);
  EXPECT_LT(world.memory({.micro = 8, .offload = true}).activations, 4 * 8 * 1024);
}

TEST(MemoryCost, BucketsThatAreNoViewsAndCompressionCostMore) {
  const Candidate two{.method = Method::ddp, .ranks = 2};
  EXPECT_DOUBLE_EQ(on_gpu().memory(two).buckets, 0);
  EXPECT_DOUBLE_EQ(
      on_gpu({{"parallel.gradient_as_bucket_view", "false"}}).memory(two).buckets,
      4 * kMillion);
  EXPECT_DOUBLE_EQ(on_gpu({{"parallel.gradient_as_bucket_view", "false"}})
                       .memory({.method = Method::single})
                       .buckets,
                   4 * kMillion)
      << "a rank that is alone copies, too";
  EXPECT_DOUBLE_EQ(on_gpu({{"parallel.compression", "bf16"}}).memory(two).buckets,
                   2 * kMillion);
}

TEST(MemoryCost, RanksThatShareMemoryShardTheState) {
  const Candidate two{.method = Method::ddp, .ranks = 2};
  EXPECT_DOUBLE_EQ(on_cpu().memory(two).optimizer, 4 * kMillion);
  EXPECT_DOUBLE_EQ(on_cpu({{"parallel.shard_update", "off"}}).memory(two).optimizer,
                   8 * kMillion);
}

TEST(MemoryCost, CountedTensorsAreNotThoseInSharedMemory) {
  const auto counted = on_cpu({{"memory.host_limit", "1GiB"}});
  const auto two = counted.memory({.method = Method::ddp, .ranks = 2});
  EXPECT_DOUBLE_EQ(two.parameters + two.gradients, 0);
  EXPECT_DOUBLE_EQ(two.optimizer, 4 * kMillion);
  EXPECT_DOUBLE_EQ(counted.memory({}).parameters, 4 * kMillion);
  EXPECT_DOUBLE_EQ(counted.memory({}).process, 0);
}

TEST(MemoryCost, AnEvaluationMayTakeMoreThanAStep) {
  auto world = on_cpu({{"batch.eval", "100"}});
  world.model.forward.fp32.per_sample_bytes = 1 << 20;
  EXPECT_DOUBLE_EQ(world.memory({}).activations + world.memory({}).transient,
                   100 << 20);
  world = on_cpu({{"batch.eval", "100"}, {"data.eval_samples", "10"}});
  world.model.forward.fp32.per_sample_bytes = 1 << 20;
  EXPECT_DOUBLE_EQ(world.memory({}).activations + world.memory({}).transient, 10 << 20);
}

TEST(MemoryCost, ASearchForTheMicroBatchAllowsLess) {
  const auto gpu = on_gpu();
  const planner::CostInputs inputs{gpu.config, gpu.machine, gpu.model, {}};
  EXPECT_EQ(memory_limit(inputs, {.ranks = 2}).because, "0.8 x 80.0 GiB");
  const auto limited = on_cpu({{"memory.host_limit", "1GiB"}});
  const planner::CostInputs few{limited.config, limited.machine, limited.model, {}};
  EXPECT_EQ(memory_limit(few, {}).because, "0.8 x memory.host_limit 1.0 GiB");
}

TEST(MemoryCost, TheLimitIsAShareOfTheDeviceOrTheHost) {
  const auto gpu = on_gpu({{"batch.micro", "1"}});
  const planner::CostInputs inputs{gpu.config, gpu.machine, gpu.model, {}};
  EXPECT_EQ(memory_limit(inputs, {.ranks = 2}).because, "0.9 x 80.0 GiB");
  const auto cpu = on_cpu();
  const planner::CostInputs host{cpu.config, cpu.machine, cpu.model, {}};
  EXPECT_EQ(memory_limit(host, {.ranks = 2}).because,
            "0.9 x 1.0 TiB of the host / 2 ranks");
  const auto limited = on_cpu({{"memory.host_limit", "1GiB"}, {"batch.micro", "1"}});
  const planner::CostInputs few{limited.config, limited.machine, limited.model, {}};
  EXPECT_DOUBLE_EQ(memory_limit(few, {.method = Method::ddp, .ranks = 2}).bytes,
                   1 << 30);
  const auto threads = memory_limit(few, {.method = Method::data_parallel, .ranks = 2});
  EXPECT_DOUBLE_EQ(threads.bytes, 1 << 29);
  EXPECT_EQ(threads.because, "memory.host_limit 1.0 GiB / 2 replicas");
}

TEST(MemoryCost, TheTermsAddUpInWords) {
  const auto text = terms_of(on_gpu().memory({.micro = 1024}));
  EXPECT_THAT(text, HasSubstr("parameters 3.8 MiB + gradients 3.8 MiB + optimizer 7.6 "
                              "MiB + activations 4.0 MiB"));
  EXPECT_THAT(text, HasSubstr(" = "));
}

TEST(TimeCost, ComputeIsThreeForwardPassesAndRecomputingAFourth) {
  const auto world = on_gpu();
  const auto plain = world.time({.micro = 1024});
  const auto again = world.time({.micro = 1024, .recompute = true});
  EXPECT_NEAR(again.compute / plain.compute, 4.0 / 3, 0.01)
      << "but for the bytes that are moved";
  EXPECT_NEAR(world.time({.micro = 1024, .accumulation = 3}).compute, 3 * plain.compute,
              1e-12);
}

TEST(TimeCost, ExchangeIsHiddenBehindTheBackwardPassIfThatIsLong) {
  auto world = on_gpu();
  const Candidate eight{.method = Method::ddp, .ranks = 8, .micro = 4096};
  const auto hidden = world.time(eight);
  EXPECT_GT(hidden.exchange, 0);
  EXPECT_LT(hidden.exposed, 0.7 * hidden.exchange);
  world.model.units[0].forward_flops = 1;  // nothing to hide behind
  world.model.units[0].kept = {};
  const auto bare = world.time(eight);
  EXPECT_NEAR(bare.exposed, bare.exchange, 0.01 * bare.exchange);
  EXPECT_DOUBLE_EQ(world.time({.micro = 4096}).exchange, 0) << "one rank sends nothing";
}

TEST(TimeCost, HalfTheBytesTakeLessTime) {
  const Candidate two{.method = Method::ddp, .ranks = 2};
  EXPECT_LT(on_gpu({{"parallel.compression", "bf16"}}).time(two).exchange,
            on_gpu().time(two).exchange);
}

TEST(TimeCost, ACorrectionOfThePastIsAFactor) {
  const auto world = on_gpu();
  planner::Correction twice;
  twice.time = 2;
  const planner::CostInputs inputs{world.config, world.machine, world.model, twice};
  EXPECT_DOUBLE_EQ(time_cost(inputs, {}).compute, 2 * world.time({}).compute);
}

TEST(TimeCost, ASmallBatchWaitsForTheHostThatLaunches) {
  auto world = on_gpu();
  world.model.units[0].operators = 1000;
  planner::Correction slow_host;
  slow_host.host_time = 2;
  const planner::CostInputs inputs{world.config, world.machine, world.model, slow_host};
  const auto small = world.time({.micro = 1}), large = world.time({.micro = 100'000});
  EXPECT_TRUE(small.host_bound);
  EXPECT_FALSE(large.host_bound);
  EXPECT_DOUBLE_EQ(time_cost(inputs, {.micro = 1}).compute, 2 * small.compute);
  EXPECT_DOUBLE_EQ(time_cost(inputs, {.micro = 100'000}).compute, large.compute);
  EXPECT_NEAR(world.time({.micro = 1, .recompute = true}).compute / small.compute,
              4.0 / 3, 1e-9);
}

TEST(TimeCost, SpeedUpsAreOneForOneRankAndGrow) {
  const auto world = on_gpu();
  const auto scaling =
      planner::predict_scaling({world.config, world.machine, world.model, {}},
                               {.method = Method::ddp, .ranks = 8, .micro = 4096});
  ASSERT_EQ(scaling.size(), 4U);
  EXPECT_DOUBLE_EQ(scaling[0].speed_up, 1);
  for (std::size_t i = 1; i < scaling.size(); ++i) {
    EXPECT_GT(scaling[i].speed_up, scaling[i - 1].speed_up);
    EXPECT_LT(scaling[i].speed_up, scaling[i].ranks);
  }
}

TEST(Rates, DataSheetsAreFoundByTheDriversName) {
  EXPECT_DOUBLE_EQ(planner::find_sheet("NVIDIA H100 80GB HBM3")->half, 989e12);
  EXPECT_DOUBLE_EQ(planner::find_sheet("NVIDIA H100 PCIe")->half, 756e12);
  EXPECT_DOUBLE_EQ(planner::find_sheet("NVIDIA L40S")->half, 362e12);
  EXPECT_DOUBLE_EQ(planner::find_sheet("NVIDIA L4")->half, 121e12);
  EXPECT_DOUBLE_EQ(planner::find_sheet("NVIDIA A100-SXM4-40GB")->memory, 1555e9);
  EXPECT_DOUBLE_EQ(planner::find_sheet("NVIDIA A10G")->half, 70e12);
  EXPECT_FALSE(planner::find_sheet("NVIDIA L400"));
  EXPECT_FALSE(planner::find_sheet(""));
}

TEST(Rates, AnUnknownGpuIsEstimatedAndThatIsSaid) {
  auto machine = planner::shipped_machine("8xa100-80");
  const auto sheet = planner::gpu_rates(machine, 0, config::Precision::bf16);
  machine.gpus[0].name = "NVIDIA X1";
  const auto rates = planner::gpu_rates(machine, 0, config::Precision::bf16);
  EXPECT_EQ(rates.source, "estimated: 108 multiprocessors x 1410 MHz");
  EXPECT_NEAR(rates.flops, sheet.flops, 0.01 * sheet.flops);
}

TEST(Rates, WhatWasMeasuredCountsMoreThanAnySheet) {
  auto machine = planner::shipped_machine("8xa100-80");
  machine.gpus[1].uuid = "GPU-1";
  machine.measured.emplace();
  machine.measured->date = "2026-11-15";
  machine.measured->gpus = {{.index = 7, .uuid = "GPU-1", .bf16_flops = 250e12}};
  machine.measured->collectives = {{"nccl", 8, 1 << 20, 1}, {"gloo", 8, 1 << 20, 7}};
  const auto rates = planner::gpu_rates(machine, 1, config::Precision::bf16);
  EXPECT_DOUBLE_EQ(rates.flops, 250e12);
  EXPECT_EQ(rates.source, "measured 2026-11-15");
  EXPECT_EQ(planner::gpu_rates(machine, 0, config::Precision::bf16).source,
            "data sheet");
  EXPECT_DOUBLE_EQ(planner::gpu_link(machine, 8).bytes, 2.0 * 7 / 8 * (1 << 20));
  EXPECT_THAT(planner::cpu_link(machine, 2, true).source,
              HasSubstr("gloo as measured"));
  machine.measured->cpu_flops = 1e12;
  EXPECT_DOUBLE_EQ(planner::cpu_rates(machine, 48).flops, 0.5e12) << "half the cores";
}

TEST(Rates, TheSlowestLinkCounts) {
  auto machine = planner::shipped_machine("8xa100-80");
  EXPECT_EQ(planner::gpu_link(machine, 8).source, "12 NVLinks");
  machine.gpu_pairs[0].nvlinks = 0;  // 0 and 1
  EXPECT_EQ(planner::gpu_link(machine, 2).source, "PCIe 4 x16");
  EXPECT_EQ(planner::gpu_link(planner::shipped_machine("4xl4"), 4).source,
            "PCIe 4 x16 through the host");
}

}  // namespace lockstep::test
