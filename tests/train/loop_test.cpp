// What a person expects of a training loop beside training.
#include <array>
#include <cmath>

#include "lockstep/memory/out_of_memory.h"
#include "lockstep/memory/recovery.h"
#include "lockstep/monitor/console.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using testing::Contains;
using testing::HasSubstr;

struct Loop {
  Result result;
  std::vector<monitor::Metrics> metrics;
  std::vector<std::string> events, files;

  std::vector<double> losses() const {
    std::vector<double> all;
    for (const auto& m : metrics) all.push_back(m.loss);
    return all;
  }
};

Loop loop_in(const files::Path& folder, const config::Config& config,
             comm::World& world) {
  const auto path = folder / "runs" / "r";
  const auto run = std::filesystem::exists(path)
                       ? run::RunDirectory::open(path)
                       : run::RunDirectory::create(folder / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  Loop done;
  {
    Reporter reporter({run, console}, config.monitor,
                      {.rank = world.rank(), .ranks = world.size()});
    done.result = train(test::resolved(config), {run, reporter, stop, world});
  }
  if (world.rank() != 0) return done;
  done.metrics = monitor::read_metrics(run.metrics());
  for (const auto& event : run::last_events(run.events(), 100)) {
    done.events.push_back(event.kind);
  }
  for (const auto& file : std::filesystem::directory_iterator(run.path())) {
    done.files.push_back(file.path().filename());
  }
  return done;
}

Loop run_loop(const config::Config& config) {
  const files::TemporaryDirectory folder;
  auto world = comm::join({}, {});
  return loop_in(folder.path(), config, world);
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

TEST(Loop, StopsEarlyAndKeepsTheBest) {
  auto config = test::quick_config();
  config.train.steps = 100;
  config.eval.every = 2;
  config.early_stop.patience = 2;
  config.early_stop.min_delta = 100;  // nothing is so much better
  config.checkpoint.save_best = true;
  const auto run = run_loop(config);
  EXPECT_EQ(run.result.steps, 6) << "the best is the first, at step 2";
  EXPECT_THAT(run.result.ended_early, HasSubstr("for 2 evaluations"));
  EXPECT_THAT(run.files, Contains("best.safetensors"));
  config.early_stop.patience = 0;
  config.train.steps = 8;
  config.checkpoint.save_best = false;
  const auto whole = run_loop(config);
  EXPECT_EQ(whole.result.steps, 8);
  EXPECT_THAT(whole.files, testing::Not(Contains("best.safetensors")));
}

TEST(Loop, AMistakeInTheEvaluationShowsBeforeTheFirstStep) {
  auto config = test::quick_config();
  config.early_stop.metric = "f1";
  config.eval.sanity_batches = 1;
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_loop(config); }),
              HasSubstr("early_stop.metric: 'f1' is not evaluated"));
  config.eval.metrics = {config::EvalMetric::f1, config::EvalMetric::top_k};
  const auto run = run_loop(config);
  ASSERT_EQ(run.result.eval->values.size(), 3U);
  EXPECT_EQ(run.result.eval->values[1].name, "f1");
  EXPECT_EQ(run.result.eval->values[2].name, "accuracy_top_5");
  EXPECT_EQ(run.metrics.front().split, monitor::Split::train) << "it is no evaluation";
}

TEST(Loop, ASanityEvaluationChangesNothing) {
  auto config = test::quick_config();
  config.model.name = "resnet9";
  config.model.dropout = 0.3;
  config.train.steps = 3;
  const auto plain = run_loop(config);
  config.eval.sanity_batches = 2;
  EXPECT_EQ(run_loop(config).losses(), plain.losses());
}

TEST(Loop, ADevelopersRunIsShort) {
  auto config = test::quick_config();
  config.train.fast_dev_run = 2;
  const auto run = run_loop(config);
  EXPECT_EQ(run.result.steps, 2);
  EXPECT_EQ(run.result.eval->count, 2 * 16);
}

TEST(Loop, OverfitsAFewBatches) {
  auto config = test::quick_config();
  config.train.overfit_batches = 2;
  config.train.epochs = 40;
  config.optim.lr = 0.01;
  const auto run = run_loop(config);
  EXPECT_EQ(run.result.steps, 80);
  EXPECT_EQ(run.result.eval->count, 32) << "on what it has learnt";
  EXPECT_GT(run.result.eval->find("accuracy"), 0.99);
}

TEST(Loop, TheAverageIsEvaluatedAndSaved) {
  auto config = test::quick_config();
  config.train.steps = 10;
  config.optim.lr = 0.01;
  const auto plain = run_loop(config);
  config.ema.enabled = true;
  config.ema.decay = 0.9;
  const auto averaged = run_loop(config);
  EXPECT_THAT(averaged.files, Contains("ema.safetensors"));
  EXPECT_THAT(averaged.result.average, HasSubstr("ema.safetensors"));
  EXPECT_TRUE(averaged.result.eval_is_of_average);
  EXPECT_NE(averaged.result.eval->loss, plain.result.eval->loss);
  EXPECT_EQ(averaged.result.train_loss, plain.result.train_loss);
  config.ema.evaluate = false;
  const auto last = run_loop(config);
  EXPECT_EQ(last.result.eval->loss, plain.result.eval->loss);
  EXPECT_FALSE(last.result.eval_is_of_average);
}

// The file of a run is a beginning for one of the same precision, exactly, and for
// others.
TEST(Loop, WeightsOfEveryPrecisionAreTakenByEveryOther) {
  const std::vector modes{config::Precision::fp64, config::Precision::fp32,
                          config::Precision::bf16_params,
                          config::Precision::fp16_params};
  for (const auto from : modes) {
    const files::TemporaryDirectory folder;
    auto config = test::quick_config();
    config.train.steps = 3;
    config.precision.mode = from;
    auto world = comm::join({}, {});
    const auto first = loop_in(folder.path(), config, world);
    config.model.weights = first.result.weights;
    config.train.steps = 1;
    config.optim.lr = 1e-30;  // what is evaluated is what was loaded
    for (const auto to : modes) {
      config.precision.mode = to;
      const auto second = run_loop(config);
      if (from == to) {
        EXPECT_EQ(second.result.eval->loss, first.result.eval->loss);
      } else {
        // bf16 has 8 bits, fp16 has 11.
        EXPECT_NEAR(second.result.eval->loss, first.result.eval->loss, 0.05);
      }
    }
  }
}

TEST(Loop, TheNormOfTheGradientsIsReportedAndClipped) {
  auto config = test::quick_config();
  config.train.steps = 4;
  const auto plain = run_loop(config);
  const auto norm_in = [](const monitor::Metrics& metrics) {
    for (const auto& field : metrics.more) {
      if (field.name == "gradient_norm") return std::get<double>(field.value);
    }
    return -1.0;
  };
  EXPECT_GT(norm_in(plain.metrics[0]), 0);
  config.optim.name = config::Optimizer::sgd;
  const auto free = run_loop(config);
  config.optim.clip_norm = norm_in(free.metrics[0]) / 2;
  const auto clipped = run_loop(config);
  EXPECT_EQ(norm_in(clipped.metrics[0]), norm_in(free.metrics[0])) << "before clipping";
  EXPECT_NE(clipped.metrics[1].loss, free.metrics[1].loss);
}

TEST(Loop, StepsWithoutFiniteGradientsAreSkippedUpToALimit) {
  auto config = test::quick_config();
  config.optim.name = config::Optimizer::sgd;
  config.optim.lr = 1e30;
  config.train.steps = 50;
  config.train.on_nonfinite = config::OnNonfinite::skip;
  config.train.max_skipped = 3;
  EXPECT_THAT(test::error_text(Fault::diverged, [&] { run_loop(config); }),
              HasSubstr("NaN or inf gradients in 3 steps in a row"));
}

TEST(Loop, HalfPrecisionFindsItsLossScale) {
  for (const auto mode : {config::Precision::fp16, config::Precision::fp16_params}) {
    SCOPED_TRACE(config::name_of(mode));
    auto config = test::quick_config();
    config.precision.mode = mode;
    config.precision.initial_scale = 1e9;
    config.train.epochs = 8;
    config.optim.lr = 0.01;
    const auto run = run_loop(config);
    EXPECT_GT(run.result.skipped, 3);
    EXPECT_THAT(run.events, Contains("skipped"));
    EXPECT_LT(run.result.eval->loss, 1.0);
    EXPECT_TRUE(std::isnan(run.metrics.front().loss)) << "a skipped step has no loss";
    config.precision.initial_scale = 1024;
    EXPECT_EQ(run_loop(config).result.skipped, 0);
  }
}

// On what it is trained with: the loss of fifty other samples, after eight times two
// hundred, is more a matter of the seed than of the precision.
TEST(Loop, WeightsOfHalfTheSizeLearnToo) {
  for (const auto mode : {config::Precision::fp32, config::Precision::bf16_params,
                          config::Precision::fp16_params}) {
    SCOPED_TRACE(config::name_of(mode));
    auto config = test::quick_config();
    config.precision.mode = mode;
    config.train.overfit_batches = 4;
    config.train.epochs = 30;
    config.optim.lr = 0.01;
    const auto run = run_loop(config);
    EXPECT_EQ(run.result.steps, 120);
    EXPECT_LT(run.result.eval->loss, 0.1);
    EXPECT_GT(run.result.eval->find("accuracy"), 0.99);
  }
}

// Layers that autocast computes in 16 bits round the same numbers: parameters of 16
// bits are its copies, and their fp32 copies its parameters.
TEST(Loop, WeightsOfHalfTheSizeComputeWhatAutocastDoes) {
  const std::array pairs{
      std::pair{config::Precision::fp16, config::Precision::fp16_params},
      std::pair{config::Precision::bf16, config::Precision::bf16_params}};
  for (const auto& [autocast, halves] : pairs) {
    auto config = test::quick_config();
    config.train.epochs = 2;
    config.optim.lr = 0.01;
    config.precision.mode = autocast;
    const auto expected = run_loop(config);
    config.precision.mode = halves;
    const auto run = run_loop(config);
    ASSERT_EQ(run.metrics.size(), expected.metrics.size());
    EXPECT_EQ(run.result.skipped, expected.result.skipped);
    for (std::size_t i = 0; i < run.metrics.size(); ++i) {
      const bool both_skipped =
          std::isnan(run.metrics[i].loss) && std::isnan(expected.metrics[i].loss);
      EXPECT_TRUE(both_skipped || run.metrics[i].loss == expected.metrics[i].loss)
          << config::name_of(halves) << " " << i << ": " << run.metrics[i].loss
          << " and " << expected.metrics[i].loss;
    }
  }
}

TEST(Loop, ActivationsAreComputedAgainWithTheSameLosses) {
  auto config = test::quick_config();
  config.model.name = "resnet9";
  config.model.dropout = 0.2;
  config.train.steps = 3;
  // In bf16, autocast's copies of the weights must not outlive a step.
  for (const auto mode : {config::Precision::fp32, config::Precision::bf16}) {
    config.precision.mode = mode;
    config.memory.recompute_every = 0;
    const auto kept = run_loop(config);
    config.memory.recompute_every = 1;
    EXPECT_EQ(run_loop(config).losses(), kept.losses());
  }
  config.model.name = "cnn";
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_loop(config); }),
              HasSubstr("cnn has no blocks"));
}

TEST(Loop, DropoutDoesNotDependOnHowABatchIsCut) {
  auto config = test::quick_config();
  config.model.dropout = 0.5;
  config.train.steps = 6;
  const auto whole = run_loop(config).losses();
  for (const std::int64_t micro : {5, 1}) {
    config.batch.micro = micro;
    const auto cut = run_loop(config).losses();
    for (std::size_t i = 0; i < whole.size(); ++i) {
      EXPECT_NEAR(cut[i], whole[i], 1e-5) << "sums in another order only";
    }
  }
  config.run.seed += 1;
  EXPECT_GT(std::abs(run_loop(config).losses()[0] - whole[0]), 1e-3);
}

// Hooks see one gradient of each parameter, however often a block is computed.
TEST(Loop, ActivationsAreComputedAgainOnSeveralRanks) {
  const files::TemporaryDirectory folder;
  const int port = test::free_port();
  test::as_processes(2, [&](int rank) {
    auto world = comm::join(test::environment_of(rank, 2, port), {});
    std::vector<double> kept;
    for (const int every : {0, 1, 2}) {
      auto config = test::quick_config();
      config.model.name = "resnet9";
      config.train.steps = 3;
      config.parallel.strategy = config::Strategy::ddp;
      config.memory.recompute_every = every;
      const auto place = folder.path() / str("every", every);
      if (rank == 0) run::RunDirectory::create(place / "runs", {.name = "r"});
      world.cpu().barrier();
      const auto losses = loop_in(place, config, world).losses();
      if (every == 0) kept = losses;
      EXPECT_EQ(losses, kept) << every;
    }
    world.close();
  });
}

// Of one run: what it needs at most.
std::int64_t peak_of(const config::Config& config) {
  const memory::HostMemoryLimit all(std::int64_t{1} << 40);
  run_loop(config);
  return all.peak_bytes();
}

config::Config memory_config(std::int64_t micro) {
  auto config = test::quick_config();
  config.model.name = "cnn";
  config.train.steps = 3;
  config.batch.eval = 1;
  config.batch.micro = micro;
  return config;
}

TEST(Loop, AStepThatDoesNotFitIsDoneAgainInSmallerPieces) {
  const auto large = peak_of(memory_config(16)), small = peak_of(memory_config(8));
  ASSERT_GT(large, small + (1 << 20));
  const auto wanted = run_loop(memory_config(8)).losses();
  const memory::HostMemoryLimit limit((large + small) / 2);
  const auto run = run_loop(memory_config(16));
  EXPECT_THAT(run.events, Contains("out_of_memory"));
  EXPECT_EQ(run.losses(), wanted) << "as if it had begun so";
  auto config = memory_config(16);
  config.memory.on_out_of_memory = config::OnOutOfMemory::stop;
  EXPECT_THROW(run_loop(config), c10::Error);
}

TEST(Loop, TheLargestMicroBatchThatFitsIsFound) {
  auto config = memory_config(16);
  const auto small = peak_of(memory_config(8)), large = peak_of(config);
  config.memory.find_micro = true;
  config.memory.target = 0.8;
  config.memory.host_limit = (large + small) / 2 * 10 / 8;
  const auto run = run_loop(config);
  EXPECT_THAT(run.events, Contains("micro_batch"));
  EXPECT_THAT(run.events, testing::Not(Contains("out_of_memory")));
  const auto wanted = run_loop(memory_config(16)).losses();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    EXPECT_NEAR(run.losses()[i], wanted[i], 1e-5) << "nothing is left of the tries";
  }
  config.memory.target = 0.01;
  EXPECT_THAT(error_of([&] { run_loop(config); }), HasSubstr("not even 1 sample fits"));
}

TEST(Loop, TriesOfAMicroBatchLeaveStatisticsAsTheyWere) {
  auto config = memory_config(16);
  config.model.name = "resnet9";
  config.train.steps = 1;
  config.optim.lr = 1e-12;
  const auto plain = run_loop(config).result;
  config.memory.host_limit = std::int64_t{1} << 40;
  config.memory.find_micro = true;
  config.batch.micro = 4;  // a plan's guess: the search goes up to the share of a rank
  EXPECT_EQ(run_loop(config).result.eval->loss, plain.eval->loss);
}

TEST(Loop, ALimitOfTheHostIsAKnob) {
  auto config = memory_config(1);
  config.memory.host_limit = 1 << 16;
  EXPECT_THAT(error_of([&] { run_loop(config); }),
              HasSubstr("memory.host_limit 65536"));
  config.memory.host_limit = std::int64_t{1} << 40;
  EXPECT_EQ(run_loop(config).result.steps, 3);
}

TEST(Loop, AnEvaluationThatDoesNotFitIsDoneInSmallerPieces) {
  auto config = memory_config(4);
  const auto wanted = run_loop(config).result;
  const auto little = peak_of(config);
  config.batch.eval = 50;
  ASSERT_GT(peak_of(config), little + (1 << 20));
  const memory::HostMemoryLimit limit(little + (1 << 20));
  const auto run = run_loop(config);
  EXPECT_EQ(run.result.eval->count, 50);
  EXPECT_EQ(run.result.eval->find("accuracy"), wanted.eval->find("accuracy"));
}

TEST(Loop, WhatDoesNotFitAtAllSaysWhatWouldHelp) {
  auto config = memory_config(1);
  config.model.hidden = 1;  // activations are what takes the room
  const auto limit_bytes = peak_of(config) - (16 << 10);
  const memory::HostMemoryLimit limit(limit_bytes);
  const auto text = test::error_text(Fault::hardware, [&] { run_loop(config); });
  EXPECT_THAT(text, HasSubstr("with micro-batches of 1"));
  EXPECT_THAT(text, HasSubstr("precision.mode=bf16"));
  EXPECT_THAT(text, HasSubstr("ran out"));
}

TEST(Recovery, WhenPiecesCanNotBeSmallerActivationsAreComputedAgain) {
  const auto model = models::build({.name = "resnet9"}, {{1, 8, 8}, 3});
  const config::MemoryConfig config;
  memory::Recovery recovery({.config = config, .model = *model, .micro_batch = 3});
  task::Tally tally(test::task_for({.shape = {1, 8, 8}, .num_classes = 3}),
                    torch::kCPU);
  const memory::Recovery::Shortage shortage{
      .step = 4, .ranks = {1}, .memory = {{1 << 20, 2 << 20, 4 << 20}, {}}};
  tally.add(torch::tensor(2.0), {}, 1);
  recovery.begin(tally);
  tally.add(torch::tensor(5.0), {}, 1);
  EXPECT_THAT(recovery.after(shortage, tally), HasSubstr("of 2 instead of 3"));
  EXPECT_EQ(tally.means().loss, 2.0) << "what was added is taken back";
  EXPECT_THAT(recovery.after(shortage, tally), HasSubstr("of 1 instead of 2"));
  EXPECT_EQ(model->recompute_every(), 0);
  EXPECT_THAT(recovery.after(shortage, tally), HasSubstr("computed again"));
  EXPECT_EQ(model->recompute_every(), 1);
  const auto text =
      test::error_text(Fault::hardware, [&] { recovery.after(shortage, tally); });
  EXPECT_THAT(text, HasSubstr("in step 5"));
  EXPECT_THAT(text, HasSubstr("4.0 MiB"));
}

TEST(Loop, PiecesGrowAgainIfAskedTo) {
  const auto large = peak_of(memory_config(16)), small = peak_of(memory_config(8));
  auto config = memory_config(16);
  config.train.steps = 6;
  config.memory.grow_after = 2;
  const memory::HostMemoryLimit limit((large + small) / 2);
  const auto run = run_loop(config);
  // In step 1, and in step 4, after two that fitted: each time it grows it is too much.
  EXPECT_EQ(std::count(run.events.begin(), run.events.end(), "out_of_memory"), 2);
}

// One of two ranks has less memory: both do the step again, and come to what they would
// have come to with smaller pieces. It may run out in a pass that only accumulates,
// too, and when gradients travel as something else.
TEST(Loop, ARankWithoutMemoryTakesTheOthersAlong) {
  const files::TemporaryDirectory folder;
  const int port = test::free_port();
  test::as_processes(2, [&](int rank) {
    const auto of_ranks = [](std::int64_t micro) {
      auto config = memory_config(micro);
      config.batch.global = 32;
      return config;
    };
    auto world = comm::join(test::environment_of(rank, 2, port), {});
    const auto train_on = [&](const std::string& name, config::Config config,
                              bool sharded) {
      config.parallel.strategy = config::Strategy::ddp;
      config.parallel.shard_update =
          sharded ? config::ShardUpdate::on : config::ShardUpdate::off;
      config.parallel.compression =
          sharded ? config::Compression::bf16 : config::Compression::none;
      const auto place = folder.path() / name;
      if (rank == 0) run::RunDirectory::create(place / "runs", {.name = "r"});
      world.cpu().barrier();
      return loop_in(place, config, world);
    };
    for (const std::int64_t micro : {16, 8}) {  // in one pass, and in two
      for (const bool sharded : {false, true}) {
        Loop wanted;
        const auto peak_with = [&](std::int64_t pieces) {
          const memory::HostMemoryLimit all(std::int64_t{1} << 40);
          const auto name = str("peak", micro, sharded, pieces);
          wanted = train_on(name, of_ranks(pieces), sharded);
          return all.peak_bytes();
        };
        const auto large = peak_with(micro), small = peak_with(micro / 2);
        std::optional<memory::HostMemoryLimit> limit;
        if (rank == 1) limit.emplace((large + small) / 2);
        const auto seen =
            train_on(str("short", micro, sharded), of_ranks(micro), sharded);
        if (rank != 0) continue;
        EXPECT_THAT(seen.events, Contains("out_of_memory")) << micro;
        EXPECT_EQ(seen.losses(), wanted.losses()) << micro;
      }
    }
    world.close();
  });
}

}  // namespace
}  // namespace lockstep::train
