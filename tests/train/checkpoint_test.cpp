// Exact resume: a run that was cut goes on as if it had not been.
#include <csignal>

#include "lockstep/base/text.h"
#include "lockstep/base/version.h"
#include "lockstep/monitor/console.h"
#include "lockstep/storage/catalog.h"
#include "lockstep/storage/digest.h"
#include "lockstep/storage/reader.h"
#include "lockstep/storage/safetensors.h"
#include "lockstep/train/callbacks.h"
#include "lockstep/train/stop_sources.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::IsEmpty;

// Loss by step, of the lines that a run has written.
using Losses = std::map<std::int64_t, double>;

struct Ran {
  Result result;
  Losses losses;
  std::vector<std::string> events;
};

// Ends after so many steps, as if the power had gone: nothing is saved at the end.
struct Crash : Callback {
  explicit Crash(std::int64_t after) : after_step(after) {}
  void on_step_begin(const RunContext& m, const data::Batch&) override {
    if (m.step == after_step) throw std::runtime_error("crash");
  }
  std::int64_t after_step;
};

Ran run_in(const files::Path& folder, const config::Config& config, comm::World& world,
           const RunHooks& hooks = {}) {
  const auto path = folder / "runs" / "r";
  if (world.rank() == 0 && !std::filesystem::exists(path)) {
    run::RunDirectory::create(folder / "runs", {.name = "r"});
  }
  if (world.size() > 1) world.cpu().barrier();
  const auto run = run::RunDirectory::open(path);
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  Ran ran;
  {
    Reporter reporter(run, config.monitor, console,
                      {.rank = world.rank(), .ranks = world.size()});
    try {
      ran.result = train(test::resolved(config), {run, reporter, stop, world}, hooks);
    } catch (const std::runtime_error& error) {
      if (std::string(error.what()) != "crash") throw;
    }
  }
  if (world.rank() != 0) return ran;
  for (const auto& line : monitor::read_metrics(run.metrics())) {
    if (line.split == monitor::Split::train) ran.losses[line.step] = line.loss;
  }
  for (const auto& event : run::last_events(run.events(), 100)) {
    ran.events.push_back(event.kind);
  }
  return ran;
}

Ran run_alone(const files::Path& folder, const config::Config& config,
              const RunHooks& hooks = {}) {
  auto world = comm::join({}, {});
  return run_in(folder, config, world, hooks);
}

RunHooks crash_after(std::int64_t step) {
  return {.callbacks = {std::make_shared<Crash>(step)}};
}

// A run whose result depends on all that a checkpoint has to hold.
config::Config rich_config() {
  auto config = test::quick_config();
  config.model.name = "resnet9";
  config.model.dropout = 0.3;
  config.batch.global = 20;  // 200 samples: ten steps an epoch
  config.batch.micro = 7;    // accumulation, in pieces that are not alike
  config.augment.crop_padding = 2;
  config.augment.flip = 0.5;
  config.optim.clip_norm = 1.0;
  config.schedule.name = config::Schedule::cosine;
  config.ema.enabled = true;
  config.train.steps = 12;
  config.eval.every = 4;
  config.checkpoint.every = 3;
  config.checkpoint.keep = 2;
  return config;
}

void expect_same(const Losses& cut, const Losses& unbroken) {
  ASSERT_EQ(cut.size(), unbroken.size());
  for (const auto& [step, loss] : unbroken) {
    ASSERT_TRUE(cut.contains(step)) << step;
    if (std::isnan(loss)) {  // all since the last line were skipped
      EXPECT_TRUE(std::isnan(cut.at(step))) << "step " << step;
    } else {
      EXPECT_EQ(cut.at(step), loss) << "step " << step;
    }
  }
}

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

// That saves step 2 and step 4.
config::Config four_steps() {
  auto config = test::quick_config();
  config.train.steps = 4;
  config.checkpoint.every = 2;
  return config;
}

files::Path checkpoints_in(const files::Path& folder) {
  return folder / "runs" / "r" / "checkpoints";
}

void flip_a_bit(const files::Path& file) {
  auto bytes = test::read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  test::write_file(file, bytes);
}

TEST(Checkpoint, ADamagedOneIsLeftOutAndTheOneBeforeTaken) {
  const files::TemporaryDirectory folder;
  auto config = four_steps();
  run_alone(folder.path(), config);
  const auto steps = checkpoints_in(folder.path());
  flip_a_bit(steps / "step_4" / "rank_0.safetensors");
  config.train.steps = 5;
  config.checkpoint.keep = 1;
  config.checkpoint.every = 3;
  EXPECT_EQ(run_alone(folder.path(), config).result.resumed_at, 2);
  // A later one that is damaged is no reason to remove those that are saved now.
  EXPECT_EQ(storage::list_steps(steps).back().step, 5);
  EXPECT_TRUE(std::filesystem::exists(steps / "set_aside_1" / "step_4"));
  config.train.steps = 6;
  EXPECT_EQ(run_alone(folder.path(), config).result.resumed_at, 5);
}

// Nothing is wrong with it: an older one must not be taken instead, nor this set aside.
TEST(Checkpoint, OneOfANewerLockstepIsRefused) {
  const files::TemporaryDirectory folder;
  auto config = four_steps();
  run_alone(folder.path(), config);
  const auto steps = checkpoints_in(folder.path());
  const auto manifest = steps / "step_4" / storage::kManifestName;
  auto text = test::read_file(manifest);
  const std::string old = "\"format\": 1,";
  text.replace(text.find(old), old.size(), "\"format\": 9,");
  const auto rest = text.substr(text.find('\n') + 1);
  const auto digest = storage::to_hex(storage::digest_of(rest));
  test::write_file(manifest, str("{\"digest\": \"", digest, "\",\n", rest));
  EXPECT_THAT(
      test::error_text(Fault::config, [&] { run_alone(folder.path(), config); }),
      HasSubstr("format 9 is newer"));
  EXPECT_TRUE(std::filesystem::exists(manifest));
}

// Between a save's begin and the next forward pass nothing waits: there is no callback.
TEST(Checkpoint, WhatIsSavedWhileTrainingGoesOnIsTheStepItSays) {
  const files::TemporaryDirectory one;
  auto config = rich_config();
  config.train.steps = 7;
  config.checkpoint.every = 1;
  config.checkpoint.keep = 100;
  const auto unbroken = run_alone(one.path(), config);
  for (const std::int64_t step : {1, 4, 6}) {
    const files::TemporaryDirectory other;
    const auto name = str("step_", step);
    const auto from = one.path() / "runs" / "r" / "checkpoints" / name;
    config.checkpoint.resume = from.string();
    const auto later = run_alone(other.path(), config);
    EXPECT_EQ(later.result.resumed_at, step);
    EXPECT_EQ(later.result.eval->loss, unbroken.result.eval->loss) << name;
    for (const auto& [at, loss] : later.losses) {
      EXPECT_EQ(loss, unbroken.losses.at(at)) << name << ", step " << at;
    }
  }
}

TEST(Checkpoint, NeverBeginsAnewAndAPathGoesOnFromAnotherRun) {
  const files::TemporaryDirectory one, other;
  auto config = test::quick_config();
  config.train.steps = 4;
  config.checkpoint.every = 2;
  const auto first = run_alone(one.path(), config);
  config.checkpoint.resume = (one.path() / "runs" / "r").string();
  config.train.steps = 6;
  const auto second = run_alone(other.path(), config);
  EXPECT_EQ(second.result.resumed_at, 4);
  EXPECT_EQ(second.losses.begin()->first, 5);
  config.checkpoint.resume = "never";
  config.checkpoint.keep = 1;
  config.train.steps = 2;
  EXPECT_FALSE(run_alone(other.path(), config).result.resumed_at);
  const auto steps = other.path() / "runs" / "r" / "checkpoints";
  EXPECT_EQ(storage::list_steps(steps).back().step, 2) << "not that of the run before";
  EXPECT_TRUE(std::filesystem::exists(steps / "set_aside_1" / "step_6"));
  // The launcher starts it again after a fault: it goes on from its own.
  config.train.steps = 3;
  EXPECT_EQ(run_alone(other.path(), config, {.restarts = 1}).result.resumed_at, 2);
  config.checkpoint.every = 1;
  config.checkpoint.keep = 5;
  config.train.steps = 5;
  config.checkpoint.resume = "auto";
  run_alone(other.path(), config);
  // A command that is given again goes on from what it has saved since.
  config.checkpoint.resume = (steps / "step_4").string();
  config.train.steps = 6;
  EXPECT_EQ(run_alone(other.path(), config).result.resumed_at, 5);
  config.checkpoint.resume = (one.path() / "nothing").string();
  const files::TemporaryDirectory third;
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_alone(third.path(), config); }),
              HasSubstr("is no checkpoint"));
}

// All steps are done there; this run can be extended and exported all the same.
TEST(Checkpoint, ARunThatGoesOnFromTheEndOfAnotherHasALastOneOfItsOwn) {
  const files::TemporaryDirectory one, other;
  auto config = test::quick_config();
  config.train.steps = 4;
  run_alone(one.path(), config);
  config.checkpoint.resume = (one.path() / "runs" / "r").string();
  const auto second = run_alone(other.path(), config);
  EXPECT_EQ(second.result.resumed_at, 4);
  EXPECT_EQ(second.result.steps, 4);
  EXPECT_TRUE(second.losses.empty());
  const auto own = other.path() / "runs" / "r" / "checkpoints";
  const auto steps = storage::list_steps(own);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps.back().step, 4);
  EXPECT_EQ(second.result.checkpoint, (own / "step_4").string());
  // Its own one it does not save again.
  config.checkpoint.resume = "auto";
  EXPECT_NE(run_alone(other.path(), config).result.already_over, "");
  EXPECT_EQ(storage::list_steps(own).size(), 1U);
}

TEST(Checkpoint, SignalsAndAFileAskForOne) {
  struct Asks : Callback {
    explicit Asks(std::function<void()> how) : ask(std::move(how)) {}
    void on_step_begin(const RunContext& m, const data::Batch&) override {
      if (m.step == 3) ask();
    }
    std::function<void()> ask;
  };
  auto config = test::quick_config();
  config.train.steps = 8;
  config.checkpoint.every = 0;
  const auto run = [&](const files::Path& folder, std::function<void()> how) {
    return run_alone(folder, config, {.callbacks = {std::make_shared<Asks>(how)}});
  };
  {
    const files::TemporaryDirectory folder;
    const auto ran = run(folder.path(), [] { ::raise(SIGUSR2); });
    EXPECT_EQ(ran.result.steps, 8) << "it goes on";
    EXPECT_THAT(ran.events, Contains("checkpoint"));
  }
  for (const int signal : {SIGTERM, SIGUSR1, 0}) {
    const files::TemporaryDirectory folder;
    config.train.steps = 1'000'000;  // a file is not looked for at every step
    const auto ran = run(folder.path(), [&] {
      if (signal != 0) {
        ::raise(signal);
      } else {
        test::write_file(folder.path() / "runs" / "r" / "stop", "");
      }
    });
    EXPECT_LT(ran.result.steps, 1'000'000) << signal;
    EXPECT_THAT(ran.result.checkpoint, HasSubstr(str("step_", ran.result.steps)));
    EXPECT_FALSE(std::filesystem::exists(folder.path() / "runs" / "r" / "stop"));
    config.train.steps = ran.result.steps + 1;
    EXPECT_EQ(run_alone(folder.path(), config).result.resumed_at, ran.result.steps);
  }
}

TEST(Checkpoint, AFileIsSeenWhileEvaluating) {
  struct Asks : Callback {
    explicit Asks(files::Path where) : file(std::move(where)) {}
    void on_eval_begin(const RunContext& m) override {
      if (m.step == 3) test::write_file(file, "");
    }
    files::Path file;
  };
  const files::TemporaryDirectory folder, other;
  auto config = test::quick_config();
  config.train.steps = 1000;
  config.eval.every = 3;
  config.data.name = "synthetic";
  config.data.shape = {1, 28, 28};
  config.data.synthetic_samples = 10'000'000;  // hours, if nobody looked
  config.data.eval_samples = 0;
  config.batch.eval = 1;
  const auto run = folder.path() / "runs" / "r";
  const auto ran = run_alone(folder.path(), config,
                             {.callbacks = {std::make_shared<Asks>(run / "stop")}});
  EXPECT_EQ(ran.result.stopped_by, SIGTERM);
  EXPECT_THAT(ran.result.checkpoint, HasSubstr("step_3"));
  EXPECT_FALSE(ran.result.eval) << "it was not evaluated to the end";
}

TEST(Checkpoint, ASaveThatTakesLongIsBegunEarlier) {
  const StopRequest signals;
  StopSources sources(signals, "nowhere/stop",
                      Clock::system().wall() + std::chrono::minutes(30), true);
  EXPECT_EQ(sources.asked(), 0);
  sources.leave_room(std::chrono::minutes(31));
  EXPECT_EQ(sources.asked(), SIGUSR1);
}

TEST(Checkpoint, TheEndOfAJobIsKnownAndTimeLimitsSaveToo) {
  const files::TemporaryDirectory folder, other;
  auto config = test::quick_config();
  config.train.steps = 1'000'000;
  const auto ran =
      run_alone(folder.path(), config,
                {.job_end = Clock::system().wall() + std::chrono::seconds(5)});
  EXPECT_EQ(ran.result.stopped_by, SIGUSR1);
  EXPECT_TRUE(ran.result.checkpoint.empty()) << "no step was done";
  config.train.max_time = std::chrono::milliseconds(300);
  const auto timed = run_alone(other.path(), config);
  EXPECT_TRUE(timed.result.out_of_time);
  EXPECT_THAT(timed.result.checkpoint, HasSubstr("step_"));
}

TEST(Checkpoint, TheBestIsEvaluatedAndWrittenAtTheEnd) {
  const files::TemporaryDirectory folder;
  auto config = test::quick_config();
  config.train.steps = 12;
  config.optim.lr = 0.5;  // it only gets worse
  config.eval.every = 2;
  config.early_stop.metric = "loss";
  config.checkpoint.every = 2;
  config.checkpoint.keep = 1;
  config.checkpoint.load_best = true;
  const auto ran = run_alone(folder.path(), config);
  const auto steps = folder.path() / "runs" / "r" / "checkpoints";
  const auto best = storage::verify(steps / "best", storage::Depth::full);
  ASSERT_TRUE(best.metric);
  EXPECT_NEAR(ran.result.eval->loss, best.metric->value, 1e-6);
  EXPECT_LE(storage::list_steps(steps).size(), 2U) << "the last and the best";
  EXPECT_EQ(best.versions.at("lockstep"), version());
  EXPECT_TRUE(best.versions.contains("libtorch"));
  // A best one that is damaged is no reason to lose the run: the last weights stay.
  flip_a_bit(steps / "best" / "rank_0.safetensors");
  config.train.steps = 13;
  config.eval.every = 0;
  const auto again = run_alone(folder.path(), config);
  EXPECT_EQ(again.result.steps, 13);
  EXPECT_GT(again.result.eval->loss, best.metric->value);
}

TEST(Checkpoint, ALookAtTheBestIsNoEvaluationToPatience) {
  const files::TemporaryDirectory folder;
  auto config = test::quick_config();
  config.train.steps = 30;
  config.optim.lr = 0.5;  // it only gets worse
  config.eval.every = 2;
  config.early_stop.metric = "loss";
  config.early_stop.patience = 2;
  config.checkpoint.every = 2;
  config.checkpoint.load_best = true;
  const auto ran = run_alone(folder.path(), config);
  EXPECT_LT(ran.result.steps, 30);
  EXPECT_THAT(ran.result.ended_early, HasSubstr("for 2 evaluations"));
}

TEST(Checkpoint, ADiskThatIsGoneIsAnEvent) {
  const files::TemporaryDirectory folder;
  auto config = test::quick_config();
  config.train.steps = 4;
  config.checkpoint.every = 2;
  // A link to a disk that is gone.
  const auto block = [&](const files::Path& place) {
    run::RunDirectory::create(place / "runs", {.name = "r"});
    std::filesystem::create_symlink("gone", place / "runs" / "r" / "checkpoints");
  };
  block(folder.path());
  const auto ran = run_alone(folder.path(), config);
  EXPECT_EQ(ran.result.steps, 4);
  EXPECT_THAT(ran.events, Contains("checkpoint_failed"));
  EXPECT_TRUE(ran.result.checkpoint.empty());
  const files::TemporaryDirectory other;
  block(other.path());
  config.checkpoint.on_failure = config::OnSaveFailure::stop;
  EXPECT_THAT(test::error_text(Fault::io, [&] { run_alone(other.path(), config); }),
              HasSubstr("checkpoint.on_failure"));
}

TEST(Checkpoint, WeightsOfAFileAreWhereTrainingBegins) {
  const files::TemporaryDirectory one, other;
  auto config = test::quick_config();
  config.train.steps = 10;
  config.optim.lr = 0.01;
  const auto first = run_alone(one.path(), config);
  config.model.weights = (one.path() / "runs" / "r" / "model.safetensors").string();
  config.train.steps = 1;
  config.optim.lr = 1e-12;
  const auto second = run_alone(other.path(), config);
  EXPECT_NEAR(second.result.eval->loss, first.result.eval->loss, 1e-4);
  config.model.hidden = 8;
  EXPECT_THAT(test::error_text(Fault::config, [&] { run_alone(other.path(), config); }),
              HasSubstr("other shape"));
}

}  // namespace
}  // namespace lockstep::train
