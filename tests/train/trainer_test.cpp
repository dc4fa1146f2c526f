#include "lockstep/train/trainer.h"

#include <cstring>

#include <signal.h>

#include "lockstep/monitor/console.h"
#include "lockstep/train/device.h"
#include "tests/data/idx_files.h"
#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using test::quick_config;

struct Run {
  Result result;
  std::vector<monitor::Metrics> metrics;
  std::vector<std::string> events;
  bool has_weights = false;
};

Run run_once(const config::Config& config, int signal_before = 0) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  if (signal_before != 0) ::raise(signal_before);
  Run done;
  {
    Reporter reporter({run, console}, config.monitor, {});
    comm::JoinOptions options;
    options.device = choose_device(config.parallel);
    auto world = comm::join({}, options);
    done.result = train(test::resolved(config), {run, reporter, stop, world});
  }
  done.metrics = monitor::read_metrics(run.metrics());
  for (const auto& event : run::last_events(run.events(), 100)) {
    done.events.push_back(event.kind);
  }
  done.has_weights = std::filesystem::exists(run.path() / "model.safetensors");
  return done;
}

std::vector<double> losses_of(const Run& run) {
  std::vector<double> losses;
  for (const auto& m : run.metrics) losses.push_back(m.loss);
  return losses;
}

TEST(Trainer, TrainsForTheEpochsAskedForAndEvaluatesAtTheEnd) {
  auto config = quick_config();
  config.train.epochs = 2;
  const auto run = run_once(config);
  EXPECT_EQ(run.result.steps, 2 * 13);  // 200 / 16, rounded up
  EXPECT_EQ(run.result.samples, 400);
  ASSERT_TRUE(run.result.eval);
  EXPECT_EQ(run.result.eval->count, 50);
  EXPECT_EQ(run.metrics.size(), 27u);
  EXPECT_EQ(run.metrics.back().split, monitor::Split::eval);
  EXPECT_LT(run.metrics[25].loss, run.metrics[0].loss);
  EXPECT_THAT(run.events,
              testing::ElementsAre("started", "memory", "checkpoint", "done"));
  EXPECT_TRUE(run.has_weights);
}

TEST(Trainer, SameSeedSameLossesToTheLastBit) {
  auto config = quick_config();
  config.model.name = "cnn";
  config.model.dropout = 0.3;
  const auto first = run_once(config);
  config.data.workers = 4;  // reading ahead is not part of the result
  config.data.prefetch = 5;
  const auto second = run_once(config);
  EXPECT_EQ(losses_of(first), losses_of(second));
  EXPECT_EQ(first.result.eval->find("accuracy"), second.result.eval->find("accuracy"));
  config.run.seed = 43;
  EXPECT_NE(losses_of(first), losses_of(run_once(config)));
}

TEST(Trainer, StepsWinOverEpochsAndCrossTheirEnd) {
  auto config = quick_config();
  config.train.steps = 20;
  const auto run = run_once(config);
  EXPECT_EQ(run.result.steps, 20);
  EXPECT_EQ(run.result.samples, 200 + 7 * 16);
}

TEST(Trainer, BatchesAreLimitedAndTheLastMayBeDropped) {
  auto config = quick_config();
  config.train.epochs = 2;
  config.train.limit_train_batches = 3;
  config.train.limit_eval_batches = 2;
  const auto limited = run_once(config);
  EXPECT_EQ(limited.result.steps, 6);
  EXPECT_EQ(limited.result.eval->count, 32);  // two batches of 16
  config.train.limit_train_batches = 0;
  config.data.drop_last = true;
  EXPECT_EQ(run_once(config).result.samples, 2 * 12 * 16);
}

TEST(Trainer, LearnsFromAugmentedMixedAndWeightedSamples) {
  auto config = quick_config();
  config.data.split = 0.2;
  config.data.weighted_sampling = true;
  config.data.balanced_loss = true;
  config.augment.crop_padding = 2;
  config.augment.flip = 0.5;
  config.augment.mixup = 0.2;
  config.augment.cutmix = 1;
  config.data.resize = 20;
  config.train.epochs = 6;
  const auto run = run_once(config);
  EXPECT_EQ(run.result.samples, 6 * 160);
  EXPECT_EQ(run.result.eval->count, 40);  // of the 200 training samples
  EXPECT_LT(run.metrics[59].loss, run.metrics[0].loss);
  EXPECT_GT(run.result.eval->find("accuracy"), 0.3);  // chance is 0.1
  config.data.workers = 1;
  EXPECT_EQ(losses_of(run_once(config)), losses_of(run));
}

TEST(Trainer, EvaluatesAsOftenAsAsked) {
  auto config = quick_config();
  config.train.steps = 10;
  config.eval.every = 4;
  std::vector<std::int64_t> steps;
  for (const auto& m : run_once(config).metrics) {
    if (m.split == monitor::Split::eval) steps.push_back(m.step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{4, 8, 10}));
  config.eval.every = config::kEachEpoch;
  config.train.steps = 30;
  steps.clear();
  for (const auto& m : run_once(config).metrics) {
    if (m.split == monitor::Split::eval) steps.push_back(m.step);
  }
  EXPECT_EQ(steps, (std::vector<std::int64_t>{13, 26, 30}));
}

TEST(Trainer, AStopRequestEndsItAtAStepBoundary) {
  const auto run = run_once(quick_config(), SIGTERM);
  EXPECT_EQ(run.result.stopped_by, SIGTERM);
  EXPECT_EQ(run.result.steps, 0);
  EXPECT_FALSE(run.result.eval);
  EXPECT_FALSE(run.has_weights);  // nothing was learnt
  EXPECT_THAT(run.events, testing::ElementsAre("started", "stopped"));
}

TEST(Trainer, ATimeLimitEndsItWithAnEvaluation) {
  auto config = quick_config();
  config.train.steps = 1'000'000;
  config.train.max_time = std::chrono::milliseconds(1);
  const auto run = run_once(config);
  EXPECT_TRUE(run.result.out_of_time);
  EXPECT_LT(run.result.steps, 1'000'000);
  EXPECT_TRUE(run.result.eval);
}

TEST(Trainer, ADivergingLossNamesTheStepAndTheKnob) {
  auto config = quick_config();
  config.optim.name = config::Optimizer::sgd;
  config.optim.lr = 1e30;
  config.train.steps = 50;
  const auto message = test::error_text(Fault::diverged, [&] { run_once(config); });
  EXPECT_THAT(message, testing::HasSubstr("by step "));
  EXPECT_THAT(message, testing::HasSubstr("optim.lr"));
}

TEST(Trainer, AnAnomalyIsADivergenceInOneLine) {
  auto config = quick_config();
  config.optim.name = config::Optimizer::sgd;
  config.optim.lr = 1e30;
  config.train.steps = 50;
  config.train.anomaly = true;
  const auto message = test::error_text(Fault::diverged, [&] { run_once(config); });
  EXPECT_THAT(message, testing::HasSubstr("returned nan values"));
  EXPECT_THAT(message, testing::HasSubstr("train.anomaly"));
  EXPECT_THAT(message, testing::Not(testing::HasSubstr("\n")));
  torch::autograd::AnomalyMode::set_enabled(false);
}

TEST(Trainer, SplitsThatDifferAreRefusedBeforeTraining) {
  const files::TemporaryDirectory folder;
  const auto write = [&](const char* name, const std::string& content) {
    test::write_file(folder.path() / name, content);
  };
  write("train-images-idx3-ubyte", test::idx_images(30));
  write("train-labels-idx1-ubyte", test::idx_labels(30));
  write("t10k-images-idx3-ubyte", test::idx_bytes({2, 3, 3}, std::string(18, 'x')));
  write("t10k-labels-idx1-ubyte", test::idx_labels(2));
  auto config = quick_config();
  config.data.name = "idx";
  config.data.dir = folder.path().string();
  EXPECT_THAT(test::error_text(Fault::io, [&] { run_once(config); }),
              testing::HasSubstr("[1, 2, 3], test samples [1, 3, 3]"));
  write("t10k-images-idx3-ubyte", test::idx_images(2));
  write("t10k-labels-idx1-ubyte", test::idx_bytes({2}, std::string("\1\7", 2)));
  EXPECT_THAT(test::error_text(Fault::io, [&] { run_once(config); }),
              testing::HasSubstr("the test samples have 8 classes"));
}

TEST(Trainer, ABatchLargerThanTheDataNeedsNoMoreRoomThanTheData) {
  auto config = quick_config();
  config.batch.global = 16'000'000;  // 12 GB of pixels, if there were so many
  config.batch.micro = 16'000'000;
  config.batch.eval = 16'000'000;
  config.train.steps = 2;
  EXPECT_EQ(run_once(config).result.samples, 400);
}

TEST(Trainer, AWarmUpLongerThanTheRunShowsTheArithmetic) {
  auto config = quick_config();
  config.train.epochs = 2;
  config.schedule.warmup_steps = 27;
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_once(config); }),
              testing::HasSubstr("2 epochs * 13 steps = 26"));
}

TEST(Trainer, AskingForAGpuThatIsNotThereIsRefused) {
  if (torch::cuda::is_available()) GTEST_SKIP() << "there is a GPU";
  auto config = quick_config();
  config.parallel.device = config::Device::cuda;
  EXPECT_THAT(test::error_text(Fault::hardware, [&] { run_once(config); }),
              testing::HasSubstr("parallel.device"));
}

TEST(Trainer, APlateauThatWaitsForALossToRiseIsRefused) {
  auto config = quick_config();
  config.schedule.name = config::Schedule::plateau;
  config.schedule.goal = config::Goal::max;
  config.task.primary = "loss";
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_once(config); }),
              testing::HasSubstr("schedule.goal: max waits for loss to rise"));
}

TEST(TrainerGpu, LearnsOnAGpuAsOnACpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = quick_config();
  config.model.name = "cnn";
  config.train.epochs = 5;
  const auto cpu = run_once(config);
  config.parallel.device = config::Device::cuda;
  const auto gpu = run_once(config);
  EXPECT_NEAR(gpu.metrics[0].loss, cpu.metrics[0].loss, 1e-4);
  EXPECT_NEAR(gpu.metrics[60].loss, cpu.metrics[60].loss, 0.1);
  config.precision.mode = config::Precision::bf16;
  EXPECT_NEAR(run_once(config).metrics[0].loss, cpu.metrics[0].loss, 0.05);
}

// Ten sentences of five tokens, each the one that follows.
class Sentences : public data::Dataset {
 public:
  std::int64_t size() const noexcept override { return 10; }
  const data::SampleSpec& spec() const noexcept override { return spec_; }
  void read_sample(const data::Visit& visit,
                   const data::SampleBuffer& room) const override {
    for (std::size_t t = 0; t < room.target.size(); ++t) {
      const auto token = (visit.index + static_cast<std::int64_t>(t)) % 7;
      std::memcpy(room.input.data() + t * sizeof token, &token, sizeof token);
      room.target[t] = (token + 1) % 7;
    }
  }

 private:
  const data::SampleSpec spec_{
      .shape = {5}, .dtype = torch::kInt64, .num_classes = 7, .target_shape = {5}};
};

TEST(Trainer, CountsTokensWhereSamplesHaveThem) {
  class NextToken : public models::Model {
   public:
    torch::Tensor forward(const torch::Tensor& input) override {
      return torch::embedding(rows, input);
    }
    torch::Tensor rows = register_parameter("rows", torch::zeros({7, 7}));
  };
  auto config = quick_config();
  config.batch.global = config.batch.per_rank = config.batch.micro = 5;
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  RunHooks hooks;
  hooks.train_data = hooks.eval_data = std::make_shared<Sentences>();
  hooks.build_model = [](const auto&) { return std::make_shared<NextToken>(); };
  Result result;
  {
    Reporter reporter({run, console}, config.monitor, {});
    auto world = comm::join({}, {});
    result = train(test::resolved(config), {run, reporter, stop, world}, hooks);
  }
  EXPECT_THAT(to_table(result), testing::ContainsRegex("tested on +10 samples"))
      << "whose 50 tokens are no samples";
  const auto metrics = monitor::read_metrics(run.metrics());
  ASSERT_EQ(metrics.size(), 3U);
  const auto samples = metrics[1].find("samples_per_second").value();
  EXPECT_NEAR(metrics[1].find("tokens_per_second").value(), 5 * samples,
              1e-9 * samples);  // rounding
  EXPECT_NEAR(samples * metrics[1].find("step_seconds").value(), 5,
              1e-9);  // a batch a step, rounding
  EXPECT_EQ(metrics[2].find("samples"), 10);
}

}  // namespace
}  // namespace lockstep::train
