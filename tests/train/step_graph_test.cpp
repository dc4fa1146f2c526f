// A step that CUDA graphs hold has the bits of one whose kernels are launched one by
// one.
#include "lockstep/train/step_graph.h"

#include <c10/core/CachingDeviceAllocator.h>

#include "lockstep/memory/out_of_memory.h"
#include "lockstep/monitor/console.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

struct GraphRun {
  Result result;
  std::map<std::int64_t, double> losses;  // by step
  std::string weights, average;           // bytes of the files
};

GraphRun run_graph(const files::Path& folder, const config::Config& config,
                   comm::World& world, const RunHooks& hooks) {
  const auto path = folder / "runs" / "r";
  if (world.rank() == 0 && !std::filesystem::exists(path)) {
    run::RunDirectory::create(folder / "runs", {.name = "r"});
  }
  if (world.size() > 1) world.cpu().barrier();
  const auto run = run::RunDirectory::open(path);
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  GraphRun ran;
  {
    Reporter reporter({run, console}, config.monitor,
                      {.rank = world.rank(), .ranks = world.size()});
    ran.result = train(test::resolved(config), {run, reporter, stop, world}, hooks);
  }
  for (const auto& line : monitor::read_metrics(run.metrics())) {
    if (line.split == monitor::Split::train) ran.losses[line.step] = line.loss;
  }
  if (!ran.result.weights.empty()) ran.weights = test::read_file(ran.result.weights);
  if (!ran.result.average.empty()) ran.average = test::read_file(ran.result.average);
  return ran;
}

GraphRun run_graph(const files::Path& folder, const config::Config& config,
                   const RunHooks& hooks = {}) {
  comm::JoinOptions options;
  if (config.parallel.device == config::Device::cuda) {
    options.device = torch::Device(torch::kCUDA, 0);
  }
  auto world = comm::join({}, options);
  return run_graph(folder, config, world, hooks);
}

GraphRun run_graph(const config::Config& config, const RunHooks& hooks = {}) {
  const files::TemporaryDirectory folder;
  return run_graph(folder.path(), config, hooks);
}

// 200 samples in batches of 16: the last one of an epoch has 8.
config::Config gpu_config() {
  auto config = test::quick_config();
  config.parallel.device = config::Device::cuda;
  config.data.pin_memory = true;
  config.model.name = "resnet9";
  config.train.deterministic = true;
  config.train.log_every = 7;
  config.train.steps = 60;
  config.train.epochs = 0;
  return config;
}

void expect_same_bits(const GraphRun& held, const GraphRun& by_hand) {
  ASSERT_EQ(held.losses.size(), by_hand.losses.size());
  for (const auto& [step, loss] : by_hand.losses) {
    if (std::isnan(loss)) {
      EXPECT_TRUE(std::isnan(held.losses.at(step))) << "step " << step;
    } else {
      EXPECT_EQ(held.losses.at(step), loss) << "step " << step;
    }
  }
  EXPECT_EQ(held.result.skipped, by_hand.result.skipped);
  EXPECT_EQ(held.result.eval->loss, by_hand.result.eval->loss);
  EXPECT_FALSE(by_hand.weights.empty());
  EXPECT_TRUE(held.weights == by_hand.weights) << "of the weights";
  EXPECT_TRUE(held.average == by_hand.average) << "of the average";
}

void expect_graph_changes_no_bit(config::Config config, const RunHooks& hooks = {}) {
  config.train.graph = config::Graph::off;
  const auto by_hand = run_graph(config, hooks);
  config.train.graph = config::Graph::on;
  expect_same_bits(run_graph(config, hooks), by_hand);
}

// All that lives in a step: dropout keys, a schedule, accumulation in pieces that are
// not alike, loss scales that overflow, clipping, an average.
config::Config full_config() {
  auto config = gpu_config();
  config.model.dropout = 0.3;
  config.batch.global = 20;
  config.batch.micro = 7;
  config.precision.mode = config::Precision::fp16;
  config.precision.growth_interval = 9;
  config.optim.clip_norm = 1.0;
  config.schedule.name = config::Schedule::cosine;
  config.schedule.warmup_steps = 20;
  config.ema.enabled = true;
  config.train.steps = 500;
  return config;
}

// Ends as if the power had gone.
struct PowerCut : Callback {
  void on_step_begin(const RunContext& m, const data::Batch&) override {
    if (m.step == 260) throw std::runtime_error("power cut");
  }
  bool watches_passes() const override { return false; }
};

TEST(StepGraphGpu, FiveHundredStepsWithAllThatLivesInThemHaveTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = full_config();
  config.train.graph = config::Graph::off;
  const auto by_hand = run_graph(config);
  EXPECT_GE(by_hand.result.skipped, 5) << "overflows, or nothing was skipped";
  config.train.graph = config::Graph::on;
  const auto held = run_graph(config);
  expect_same_bits(held, by_hand);

  // And with a checkpoint in the middle, from which it goes on.
  const files::TemporaryDirectory folder;
  config.checkpoint.every = 125;
  EXPECT_THROW(
      run_graph(folder.path(), config, {.callbacks = {std::make_shared<PowerCut>()}}),
      std::runtime_error);
  const auto resumed = run_graph(folder.path(), config);
  EXPECT_GE(resumed.result.resumed_at.value_or(0), 125) << "saves take a while";
  expect_same_bits(resumed, by_hand);
}

TEST(StepGraphGpu, EveryPrecisionAndOptimizerHasTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const auto mode :
       {config::Precision::fp32, config::Precision::bf16,
        config::Precision::bf16_params, config::Precision::fp16_params}) {
    for (const auto rule : {config::Optimizer::adamw, config::Optimizer::sgd}) {
      SCOPED_TRACE(str(config::name_of(mode), " ", config::name_of(rule)));
      auto config = gpu_config();
      config.precision.mode = mode;
      config.optim.name = rule;
      config.optim.lr = 0.01;
      expect_graph_changes_no_bit(config);
    }
  }
}

TEST(StepGraphGpu, WeightedTargetsAndSkippedStepsHaveTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = gpu_config();
  config.data.class_weights = {1, 2, 0.5, 1, 1, 3, 1, 0.25, 1, 1};
  config.train.on_nonfinite = config::OnNonfinite::skip;
  expect_graph_changes_no_bit(config);
}

TEST(StepGraphGpu, RecomputedActivationsHaveTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = gpu_config();
  config.model.dropout = 0.2;
  config.memory.recompute_every = 1;
  expect_graph_changes_no_bit(config);
}

// Who holds what, and in which precision.
struct Holder {
  config::Strategy strategy = config::Strategy::ddp;
  config::ShardUpdate shard = config::ShardUpdate::automatic;
  int stage = 1;
  config::Precision mode = config::Precision::fp32;
};

std::vector<Holder> held_by_ranks() {
  using config::Precision, config::ShardUpdate, config::Strategy;
  return {{Strategy::ddp, ShardUpdate::automatic},
          {Strategy::ddp, ShardUpdate::on},
          {Strategy::zero, ShardUpdate::automatic, 1},
          {Strategy::zero, ShardUpdate::automatic, 2},
          {Strategy::zero, ShardUpdate::automatic, 1, Precision::fp16_params},
          {Strategy::zero, ShardUpdate::automatic, 2, Precision::fp16_params}};
}

// What travels between ranks is captured, too. They share a GPU, which NCCL allows if
// it takes them for ranks of different machines.
TEST(StepGraphGpu, RanksOverNcclHaveTheSameBits) {
  // Nothing may touch the GPU before the ranks are forked.
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  auto config = gpu_config();
  config.parallel.ranks = 2;
  config.batch.micro = 4;
  config.optim.clip_norm = 1;
  config.comm.backend = config::CommBackend::nccl;
  for (const auto& holder : held_by_ranks()) {
    config.parallel.strategy = holder.strategy;
    config.parallel.shard_update = holder.shard;
    config.parallel.zero_stage = holder.stage;
    config.precision.mode = holder.mode;
    std::vector<std::string> weights;
    for (const auto graph : {config::Graph::off, config::Graph::on}) {
      config.train.graph = graph;
      const files::TemporaryDirectory folder;
      const auto port = test::free_port();
      const auto ends = test::as_processes(2, [&](int rank) {
        ::setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
        auto world = comm::join(
            test::environment_of(rank, 2, port),
            {.config = config.comm, .device = torch::Device(torch::kCUDA, 0)});
        const auto ran = run_graph(folder.path(), config, world, {});
        EXPECT_EQ(ran.result.steps, 60);
        world.close();
      });
      for (const auto& end : ends) EXPECT_EQ(end.shell_status(), 0);
      weights.push_back(test::read_file(folder.path() / "runs/r/model.safetensors"));
    }
    EXPECT_TRUE(weights[0] == weights[1])
        << config::name_of(holder.strategy) << " " << holder.stage << " "
        << config::name_of(holder.shard) << " " << config::name_of(holder.mode);
  }
}

// Stage 3 gathers parameters beside the passes: no graph holds that, which is said
// once.
TEST(StepGraphGpu, GatheredParametersAreLaunchedByHandAndSaidOnce) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  auto config = gpu_config();
  config.parallel.ranks = 2;
  config.comm.backend = config::CommBackend::nccl;
  config.parallel.strategy = config::Strategy::zero;
  config.parallel.zero_stage = 3;
  config.train.steps = 12;
  const auto said_by = [&](config::Graph graph) {
    config.train.graph = graph;
    const files::TemporaryDirectory folder;
    const auto port = test::free_port();
    test::as_processes(2, [&](int rank) {
      ::setenv("NCCL_HOSTID", std::to_string(rank).c_str(), 1);
      std::string said;
      log::start({.writer = [&](log::Level, std::string_view line) {
        said += str(line, "\n");
      }});
      try {
        auto world = comm::join(
            test::environment_of(rank, 2, port),
            {.config = config.comm, .device = torch::Device(torch::kCUDA, 0)});
        run_graph(folder.path(), config, world, {});
        world.close();
      } catch (const Error& error) {
        said += error.what();
      }
      log::start({});
      if (rank == 0) files::write_atomically(folder.path() / "said", said);
    });
    return test::read_file(folder.path() / "said");
  };
  const auto said = said_by(config::Graph::if_possible);
  const std::string words = "no CUDA graph, kernels are launched eagerly";
  EXPECT_THAT(said, testing::HasSubstr(words));
  EXPECT_EQ(said.find(words), said.rfind(words)) << said;
  EXPECT_THAT(said_by(config::Graph::on),
              testing::HasSubstr("train.graph: on, but a graph cannot"));
}

// A model that reads from the GPU while it computes: that can not be captured. It draws
// from torch's generator, too, which a capture that failed must leave as it was.
class Reads : public models::Model {
 public:
  torch::Tensor forward(const torch::Tensor& input) override {
    const auto dropped = torch::dropout(input, 0.2, is_training());
    const auto bright = input.mean().item<double>();
    return output(dropped.flatten(1)) * (bright > 1e9 ? 2 : 1);
  }
  torch::nn::Linear output = register_module("output", torch::nn::Linear(784, 10));
};

RunHooks with_model_that_reads() {
  RunHooks hooks;
  hooks.build_model = [](const models::Shape&) { return std::make_shared<Reads>(); };
  return hooks;
}

TEST(StepGraphGpu, WhatCanNotBeCapturedIsLaunchedByHandUnlessAGraphWasAskedFor) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = gpu_config();
  config.train.graph = config::Graph::off;
  const auto by_hand = run_graph(config, with_model_that_reads());
  config.train.graph = config::Graph::if_possible;
  expect_same_bits(run_graph(config, with_model_that_reads()), by_hand);
  // Memory that nobody uses any more can be given back.
  const auto reserved = [] {
    return at::getDeviceAllocator(torch::kCUDA)
        ->getDeviceStats(0)
        .reserved_bytes[0]
        .current;
  };
  auto some = torch::empty({1 << 28}, torch::device(torch::kCUDA).dtype(torch::kUInt8));
  const auto before = reserved();
  some.reset();
  memory::empty_cache(torch::Device(torch::kCUDA, 0));
  EXPECT_LT(reserved(), before);
  config.train.graph = config::Graph::on;
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { run_graph(config, with_model_that_reads()); }),
              testing::HasSubstr("train.graph: on, but a graph cannot hold"));
}

// A model that decides on the host what it computes.
class Tosses : public models::Model {
 public:
  torch::Tensor forward(const torch::Tensor& input) override {
    const bool twice = torch::rand({1}).item<double>() < 0.5;
    return output(input.flatten(1)) * (twice ? 2 : 1);
  }
  torch::nn::Linear output = register_module("output", torch::nn::Linear(784, 10));
};

TEST(StepGraphGpu, WhatIsDrawnOnTheHostIsNotFrozen) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  RunHooks hooks;
  hooks.build_model = [](const models::Shape&) { return std::make_shared<Tosses>(); };
  auto config = gpu_config();
  config.train.graph = config::Graph::off;
  const auto by_hand = run_graph(config, hooks);
  config.train.graph = config::Graph::if_possible;
  expect_same_bits(run_graph(config, hooks), by_hand);
}

TEST(StepGraphGpu, ACallbackThatWatchesPassesIsAnObstacle) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  struct Watches : Callback {
    void on_pass(const RunContext&, profile::PassEvent) override { passes += 1; }
    int passes = 0;
  };
  auto config = gpu_config();
  config.train.steps = 6;
  const auto watcher = std::make_shared<Watches>();
  run_graph(config, {.callbacks = {watcher}});
  EXPECT_EQ(watcher->passes, 6 * 3);
  config.train.graph = config::Graph::on;
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { run_graph(config, {.callbacks = {watcher}}); }),
              testing::HasSubstr("a callback watches its passes"));
}

TEST(StepGraph, IsRefusedWithoutAGpu) {
  auto config = test::quick_config();
  config.train.graph = config::Graph::on;
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { run_graph(config); }),
      testing::HasSubstr(
          "train.graph: on, but a graph cannot hold the steps: there is no GPU"));
}

}  // namespace
}  // namespace lockstep::train
