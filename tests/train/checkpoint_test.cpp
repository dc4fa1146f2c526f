// Exact resume: a run that was cut goes on as if it had not been.
#include "lockstep/base/text.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/reader.h"
#include "lockstep/storage/safetensors.h"
#include "tests/train/checkpoint_rig.h"

namespace lockstep::train {
namespace {

using test::crash_after;
using test::expect_same;
using test::Losses;
using test::rich_config;
using test::run_alone;
using test::run_in;
using testing::Contains;
using testing::HasSubstr;

TEST(Checkpoint, ARunThatWasCutThreeTimesHasTheLossesOfAnUnbrokenOne) {
  const files::TemporaryDirectory one, other;
  const auto config = rich_config();
  const auto unbroken = run_alone(one.path(), config);
  for (const std::int64_t crash : {5, 7, 11}) {
    const auto cut = run_alone(other.path(), config, crash_after(crash));
    EXPECT_EQ(cut.result.steps, 0) << "it crashed";
  }
  const auto last = run_alone(other.path(), config);
  EXPECT_GE(last.result.resumed_at.value_or(0), 3);
  EXPECT_EQ(last.result.steps, 12);
  EXPECT_THAT(last.events, Contains("resumed"));
  expect_same(last.losses, unbroken.losses);
  EXPECT_EQ(last.result.eval->loss, unbroken.result.eval->loss) << "of the average";
  EXPECT_EQ(last.result.samples, unbroken.result.samples);
}

// A branch that takes part when the first sample is bright: in some of the steps.
struct Moody : models::Model {
  explicit Moody(const models::Shape& shape) {
    const auto width = shape.input[0] * shape.input[1] * shape.input[2];
    trunk = register_module("trunk", torch::nn::Linear(width, shape.num_classes));
    branch = register_module("branch", torch::nn::Linear(width, shape.num_classes));
  }
  torch::Tensor forward(const torch::Tensor& x) override {
    const auto flat = x.flatten(1);
    const bool bright = flat.size(0) > 0 && flat[0].mean().item<double>() > 0;
    return bright ? trunk(flat) + branch(flat) : trunk(flat);
  }
  torch::nn::Linear trunk{nullptr}, branch{nullptr};
};

TEST(Checkpoint, ParametersThatSomeStepsDoNotUseGoOnWithTheirOwnCounts) {
  const files::TemporaryDirectory one, other;
  auto config = test::quick_config();
  config.train.steps = 12;
  config.checkpoint.every = 3;
  const auto build = [](const models::Shape& shape) {
    return std::make_shared<Moody>(shape);
  };
  const auto unbroken = run_alone(one.path(), config, {.build_model = build});
  auto crash = crash_after(8);
  crash.build_model = build;
  run_alone(other.path(), config, crash);
  const auto manifest =
      storage::newest_valid(other.path() / "runs" / "r" / "checkpoints",
                            storage::Depth::quick)
          .manifest;
  EXPECT_THAT(manifest.state, HasSubstr("\"unused_steps\":{\"branch.bias\":"));
  const auto last = run_alone(other.path(), config, {.build_model = build});
  EXPECT_GT(last.result.resumed_at.value_or(0), 0);
  expect_same(last.losses, unbroken.losses);
}

TEST(Checkpoint, EveryOptimizerAndPrecisionGoesOnExactly) {
  for (const auto& [optimizer, mode] :
       {std::pair{config::Optimizer::sgd, config::Precision::fp16},
        std::pair{config::Optimizer::lion, config::Precision::bf16_params},
        std::pair{config::Optimizer::adamw, config::Precision::fp16_params},
        std::pair{config::Optimizer::adam, config::Precision::bf16}}) {
    const files::TemporaryDirectory one, other;
    auto config = test::quick_config();
    config.optim.name = optimizer;
    config.precision.mode = mode;
    config.precision.growth_interval = 2;
    config.schedule.name = config::Schedule::plateau;
    config.schedule.patience = 0;
    config.train.steps = 12;
    config.eval.every = 1;
    config.checkpoint.every = 3;
    const auto unbroken = run_alone(one.path(), config);
    run_alone(other.path(), config, crash_after(10));
    const auto last = run_alone(other.path(), config);
    EXPECT_GE(last.result.resumed_at.value_or(0), 3) << "one was written by then";
    expect_same(last.losses, unbroken.losses);
  }
}

// The learning rate follows evaluations, and the loss what the smoothed one was.
TEST(Checkpoint, AStopBeforeADueEvaluationChangesNoDecision) {
  struct Stops : Callback {
    void on_step_begin(const RunContext& m, const data::Batch&) override {
      if (m.step == 5) ::raise(SIGTERM);
    }
  };
  for (const bool by_epoch : {false, true}) {
    const files::TemporaryDirectory one, other;
    auto config = test::quick_config();
    config.schedule.name = config::Schedule::plateau;
    config.schedule.patience = 0;
    config.schedule.threshold = 10;  // nothing is an improvement
    config.early_stop.divergence = 100;
    config.train.steps = 12;
    config.eval.every = 2;
    if (by_epoch) {
      config.eval.every = config::kEachEpoch;
      config.batch.global = 34;  // 200 samples: six steps an epoch
    }
    const auto unbroken = run_alone(one.path(), config);
    const auto cut =
        run_alone(other.path(), config, {.callbacks = {std::make_shared<Stops>()}});
    EXPECT_EQ(cut.result.steps, 6);
    const auto last = run_alone(other.path(), config);
    EXPECT_EQ(last.result.resumed_at, 6);
    expect_same(last.losses, unbroken.losses);
  }
}

TEST(Checkpoint, RanksGoOnExactlyAndOtherNumbersOfThemNearly) {
  const files::TemporaryDirectory folder;
  const auto losses_of = [&](int ranks, const std::string& name, std::int64_t crash,
                             config::ShardUpdate sharded) {
    const auto place = folder.path() / name;
    const int port = test::free_port();
    test::as_processes(ranks, [&](int rank) {
      auto config = rich_config();
      config.model.name = "mlp";  // no statistics over a rank's part of a batch
      config.parallel.strategy = config::Strategy::ddp;
      config.parallel.shard_update = sharded;
      auto world = comm::join(test::environment_of(rank, ranks, port), {});
      const auto ran =
          run_in(place, config, world, crash > 0 ? crash_after(crash) : RunHooks{});
      if (crash == 0 && rank == 0) {
        std::string lines;
        for (const auto& [step, loss] : ran.losses) {
          lines += str(step, " ", text::from_double(loss), "\n");
        }
        test::write_file(place / "losses", lines);
      }
      world.close();
    });
    Losses losses;
    if (crash > 0) return losses;
    std::istringstream text(test::read_file(place / "losses"));
    std::int64_t step = 0;
    for (double loss = 0; text >> step >> loss;) losses[step] = loss;
    return losses;
  };
  using config::ShardUpdate;
  const auto unbroken = losses_of(2, "unbroken", 0, ShardUpdate::on);
  ASSERT_EQ(unbroken.size(), 12U);
  losses_of(2, "cut", 8, ShardUpdate::on);
  const auto copy = [&](const std::string& to) {
    std::filesystem::copy(folder.path() / "cut", folder.path() / to,
                          std::filesystem::copy_options::recursive |
                              std::filesystem::copy_options::copy_symlinks);
  };
  copy("three");
  copy("one");
  expect_same(losses_of(2, "cut", 0, ShardUpdate::on), unbroken);
  for (const auto& [ranks, name, sharded] :
       {std::tuple{3, "three", ShardUpdate::on}, {1, "one", ShardUpdate::off}}) {
    const auto other = losses_of(ranks, name, 0, sharded);
    ASSERT_EQ(other.size(), unbroken.size());
    for (const auto& [step, loss] : unbroken) {
      EXPECT_NEAR(other.at(step), loss, 2e-5) << ranks << " ranks, step " << step;
    }
  }
}

// At the end the average takes the place of the weights, to be evaluated and written.
TEST(Checkpoint, TheLastOneHoldsTheWeightsAndNotTheirAverage) {
  const files::TemporaryDirectory folder;
  auto config = test::quick_config();
  config.model.hidden = 2048;  // takes a while to be copied
  config.ema.enabled = true;
  config.optim.lr = 0.01;
  config.train.steps = 4;
  config.checkpoint.every = 4;
  run_alone(folder.path(), config);
  const auto run = folder.path() / "runs" / "r";
  const storage::Reader reader(run / "checkpoints" / "last");
  std::vector<std::byte> saved(2048 * 784 * sizeof(float)), average(saved.size());
  reader.read("model.hidden1.weight", saved);
  reader.read("ema.hidden1.weight", average);
  EXPECT_NE(saved, average);
  const auto header = storage::read_safetensors_header(run / "model.safetensors");
  const auto bytes = test::read_file(run / "model.safetensors");
  const auto* entry = header.find("hidden1.weight");
  const auto written =
      bytes.substr(static_cast<std::size_t>(header.data_begin + entry->begin),
                   static_cast<std::size_t>(entry->end - entry->begin));
  EXPECT_EQ(std::memcmp(saved.data(), written.data(), saved.size()), 0);
}

TEST(Checkpoint, OneOfAnotherModelIsRefusedByName) {
  const files::TemporaryDirectory folder;
  auto config = test::quick_config();
  config.train.steps = 2;
  config.checkpoint.every = 2;
  run_alone(folder.path(), config);
  config.train.steps = 4;
  config.model.hidden = 17;
  const auto refused =
      test::error_text(Fault::config, [&] { run_alone(folder.path(), config); });
  EXPECT_THAT(refused, HasSubstr("other shape"));
  EXPECT_THAT(refused, HasSubstr("[16, 784] instead of [17, 784]"));
  config.model.hidden = 16;
  config.optim.name = config::Optimizer::sgd;
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { run_alone(folder.path(), config); }),
      HasSubstr("missing"));
  config.checkpoint.ignore = "optimizer.*";
  config.checkpoint.allow_missing = "optimizer.*";
  EXPECT_EQ(run_alone(folder.path(), config).result.resumed_at, 2);
}

}  // namespace
}  // namespace lockstep::train
