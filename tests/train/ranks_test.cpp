// Several ranks train as one does.
#include "tests/comm/ranks.h"

#include <thread>

#include <signal.h>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/data/open.h"
#include "lockstep/train/device.h"
#include "lockstep/train/evaluate.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/trainer.h"
#include "tests/train/small_data.h"

namespace lockstep::test {

using ::testing::HasSubstr;

namespace {

config::Config shared_config() {
  auto config = small_config();
  config.data.train_samples = 200;
  config.data.eval_samples = 50;
  config.train.epochs = 0;
  config.train.steps = 12;
  config.train.log_every = 1;
  config.batch.global = 18;  // 4 and 5 samples for each of 4 ranks
  config.batch.micro = 3;
  config.eval.every = 5;
  config.parallel.strategy = config::Strategy::ddp;
  return config;
}

// Trains on `ranks` processes and returns rank 0's metrics.
std::vector<monitor::Metrics> metrics_with(int ranks, config::Config config,
                                           std::string* weights = nullptr) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  const int port = free_port();
  if (ranks == 1) config.parallel.strategy = config::Strategy::single;
  const auto body = [&](int rank) {
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    train::Reporter reporter({run, console}, config.monitor,
                             {.rank = rank, .ranks = ranks});
    auto world = comm::join(
        ranks == 1 ? run::RankEnvironment() : environment_of(rank, ranks, port),
        {.config = config.comm});
    train::train(test::resolved(config), {run, reporter, stop, world});
    world.close();
  };
  as_processes(ranks, body);
  if (weights != nullptr) *weights = read_file(run.path() / "model.safetensors");
  return monitor::read_metrics(run.metrics());
}

}  // namespace

TEST(Ranks, TrainAsOneRankDoes) {
  const auto config = shared_config();
  const auto alone = metrics_with(1, config);
  ASSERT_GE(alone.size(), 12U);
  for (const int ranks : {2, 4}) {
    const auto together = metrics_with(ranks, config);
    ASSERT_EQ(together.size(), alone.size()) << ranks;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      EXPECT_EQ(together[i].step, alone[i].step);
      // The same sum in another order: a few units in the last place, grown by twelve
      // updates.
      EXPECT_NEAR(together[i].loss, alone[i].loss, 1e-5 * alone[i].loss)
          << ranks << " ranks, step " << alone[i].step;
    }
  }
}

// The sum of the weights that the loss is divided by is over all ranks, whatever their
// shares are.
TEST(Ranks, ClassesWeighAsOnOneRank) {
  auto config = shared_config();
  config.data.class_weights = {1, 5, 0.2, 3, 0, 1, 7, 0.5, 2, 1};
  const auto alone = metrics_with(1, config);
  ASSERT_GE(alone.size(), 12U);
  for (const int ranks : {2, 3, 4}) {
    const auto together = metrics_with(ranks, config);
    ASSERT_EQ(together.size(), alone.size()) << ranks;
    for (std::size_t i = 0; i < alone.size(); ++i) {
      // As in TrainAsOneRankDoes.
      EXPECT_NEAR(together[i].loss, alone[i].loss, 1e-5 * alone[i].loss)
          << ranks << " ranks, step " << alone[i].step;
    }
  }
}

// The mlp's backward pass that is written out computes what autograd does.
TEST(Ranks, ABackwardPassThatIsWrittenOutGivesTheSameBits) {
  auto config = shared_config();
  config.batch.micro = 18;  // one pass: products that are added up round differently
  config.model.layers = 3;
  config.optim.clip_norm = 0.5;
  config.ema.enabled = true;
  for (const int ranks : {3, 2, 1}) {
    std::string weights[2];
    for (const bool by_hand : {false, true}) {
      config.model.own_backward = by_hand;
      metrics_with(ranks, config, &weights[by_hand ? 1 : 0]);
    }
    EXPECT_FALSE(weights[0].empty());
    EXPECT_TRUE(weights[0] == weights[1]) << ranks;
  }
}

config::Config zero_config(int stage) {
  auto config = shared_config();
  config.optim.clip_norm = 0.5;
  config.ema.enabled = true;
  config.comm.deterministic = true;
  config.parallel.bucket_bytes = 4000;
  config.parallel.first_bucket_bytes = 1000;
  if (stage > 0) {
    config.parallel.strategy = config::Strategy::zero;
    config.parallel.zero_stage = stage;
  } else {
    config.parallel.shard_update = config::ShardUpdate::off;
  }
  return config;
}

// What a rank holds is no part of what is computed.
TEST(Ranks, EveryStageOfZeroHasTheBitsOfDdp) {
  for (const auto backend :
       {config::CommBackend::automatic, config::CommBackend::gloo}) {
    for (const int ranks : {2, 3}) {
      std::string ddp;
      for (const int stage : {0, 1, 2, 3}) {
        auto config = zero_config(stage);
        config.parallel.persist_below = 0;
        config.batch.micro = 18;  // one pass
        config.comm.backend = backend;
        std::string weights;
        metrics_with(ranks, config, &weights);
        if (stage == 0) ddp = weights;
        EXPECT_FALSE(weights.empty());
        EXPECT_TRUE(weights == ddp)
            << "stage " << stage << " over " << ranks << " ranks";
      }
    }
  }
}

// Models of zero are drawn when they have memory: float copies of their parameters
// begin with what was drawn, not with what 16 bits have left of it.
TEST(Ranks, EveryStageOfZeroHasTheBitsOfDdpInParametersOf16Bits) {
  std::string ddp;
  for (const int stage : {0, 1, 2, 3}) {
    auto config = zero_config(stage);
    config.precision.mode = config::Precision::bf16_params;
    config.parallel.persist_below = 0;
    config.batch.micro = 18;  // one pass
    std::string weights;
    metrics_with(2, config, &weights);
    if (stage == 0) ddp = weights;
    EXPECT_FALSE(weights.empty());
    EXPECT_TRUE(weights == ddp) << "stage " << stage;
  }
}

// Shares of 5 and 4 samples in passes of 3, 2 and none: every pass is summed from stage
// 2 on, to the same bits at stage 3.
TEST(Ranks, EveryPassOfUnequalSharesIsSummed) {
  const auto alone = metrics_with(1, zero_config(0));
  for (const int ranks : {2, 4}) {
    for (const std::int64_t micro : {1, 3}) {
      auto config = zero_config(3);
      config.parallel.persist_below = 0;
      config.batch.micro = micro;
      std::string thrice, twice;
      metrics_with(ranks, config, &thrice);
      config.parallel.zero_stage = 2;
      const auto together = metrics_with(ranks, config, &twice);
      EXPECT_FALSE(twice.empty());
      EXPECT_TRUE(thrice == twice) << ranks << " ranks, passes of " << micro;
      ASSERT_EQ(together.size(), alone.size()) << ranks;
      for (std::size_t i = 0; i < alone.size(); ++i) {
        // As in TrainAsOneRankDoes.
        EXPECT_NEAR(together[i].loss, alone[i].loss, 1e-5 * alone[i].loss)
            << ranks << " ranks, step " << alone[i].step;
      }
    }
  }
}

// The weights after training with the ranks as threads of one process.
std::string weights_of_threads(int ranks, config::Config config) {
  const files::TemporaryDirectory folder;
  config.parallel.strategy = config::Strategy::data_parallel;
  config.parallel.ranks = ranks;
  as_processes(1, [&](int) {
    const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    const auto result = train::train_replicas(
        test::resolved(config),
        {run, train::choose_devices(config.parallel), console, stop});
    EXPECT_EQ(result.memory.size(), static_cast<std::size_t>(ranks));
    EXPECT_GT(result.memory.back().allocated_bytes, 0);
    EXPECT_GE(result.memory.back().total_bytes, result.memory.back().reserved_bytes);
  });
  return read_file(folder.path() / "runs" / "r" / "model.safetensors");
}

// Sums in the order of the ranks, whoever carries them.
TEST(Ranks, ProcessesAndThreadsGiveTheSameBits) {
  auto config = shared_config();
  config.comm.deterministic = true;
  for (const int ranks : {2, 3, 4}) {
    const auto threads = weights_of_threads(ranks, config);
    ASSERT_FALSE(threads.empty());
    for (const auto backend : {config::CommBackend::gloo, config::CommBackend::shm}) {
      std::string processes;
      config.comm.backend = backend;
      config.parallel.bucket_bytes = 1000 * ranks;  // not that it should matter
      metrics_with(ranks, config, &processes);
      EXPECT_TRUE(processes == threads) << ranks << " over " << name_of(backend);
    }
    config.comm.backend = config::CommBackend::automatic;
  }
}

TEST(Ranks, ThreadsWithDropoutGiveTheSameBitsAgain) {
  auto config = shared_config();
  config.model.dropout = 0.5;
  const auto first = weights_of_threads(3, config);
  EXPECT_FALSE(first.empty());
  EXPECT_TRUE(first == weights_of_threads(3, config));
}

namespace {

// One rank's data takes longer than its steps.
class SlowImages : public SmallImages {
 public:
  using SmallImages::SmallImages;
  std::int64_t read(std::int64_t index, std::span<std::byte> input) const override {
    const auto end = Clock::system().now() + std::chrono::milliseconds(2);
    while (Clock::system().now() < end) continue;  // computing, as decoders do
    return SmallImages::read(index, input);
  }
};

}  // namespace

// From the stamps of the engine to the event.
TEST(Ranks, TheOneWithSlowDataIsNamed) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  auto config = shared_config();
  config.parallel.strategy = config::Strategy::data_parallel;
  config.train.log_every = 12;
  config.eval.every = 0;
  config.data.workers = 1;
  auto worlds = comm::join_threads({torch::kCPU, torch::kCPU}, {});
  const train::StopRequest stop;
  const auto errors = as_threads(2, [&](int rank) {
    train::Shared own;  // as in a process of its own
    if (rank == 1) {
      own.train_data = std::make_unique<SlowImages>(200);
    } else {
      own.train_data = std::make_unique<SmallImages>(200);
    }
    own.eval_data = std::make_unique<SmallImages>(10);
    own.ranks = 2;
    monitor::Console console({.write = [](std::string_view) {}});
    train::Reporter reporter({run, console}, config.monitor,
                             {.rank = rank, .ranks = 2});
    train::train(test::resolved(config),
                 {run, reporter, stop, worlds[static_cast<std::size_t>(rank)]}, own);
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
  std::string line;
  for (const auto& event : run::last_events(run.events(), 100)) {
    if (event.kind == "straggler") line = run::to_json_line(event.fields);
  }
  EXPECT_THAT(line, HasSubstr("\"rank\":1"));
  EXPECT_THAT(line, HasSubstr("\"cause\":\"data wait\""));
  const auto last = monitor::last_metrics(run.metrics(), monitor::Split::train);
  ASSERT_TRUE(last.has_value());
  EXPECT_GT(last->find("exchange_wait_seconds").value_or(0), 0.01);  // rank 0's
}

// Autograd has one thread for the GPU, and both replicas need it.
TEST(RanksGpu, TwoReplicasOnOneGpuTrainAsOneRank) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = shared_config();
  config.parallel.device = config::Device::cuda;
  const auto metrics_of = [&](const char* name) {
    const files::TemporaryDirectory folder;
    const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = name});
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    train::train_replicas(test::resolved(config),
                          {run, train::choose_devices(config.parallel), console, stop});
    return monitor::read_metrics(run.metrics());
  };
  config.parallel.strategy = config::Strategy::data_parallel;
  config.parallel.ranks = 1;
  const auto alone = metrics_of("alone");
  config.parallel.ranks = 3;
  config.parallel.device_ids = {0, 0, 0};
  const auto together = metrics_of("together");
  ASSERT_GE(alone.size(), 12U);
  ASSERT_EQ(together.size(), alone.size());
  for (std::size_t i = 0; i < alone.size(); ++i) {
    EXPECT_NEAR(together[i].loss, alone[i].loss, 1e-4 * alone[i].loss)
        << i;  // as above
  }
}

TEST(Ranks, AThreadThatFailsEndsTheOthers) {
  const files::TemporaryDirectory folder;
  auto config = shared_config();
  config.parallel.strategy = config::Strategy::data_parallel;
  config.parallel.ranks = 3;
  config.optim.lr = 1e30;
  as_processes(1, [&](int) {
    const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    const auto devices = train::choose_devices(config.parallel);
    EXPECT_THAT(error_text(Fault::diverged,
                           [&] {
                             train::train_replicas(test::resolved(config),
                                                   {run, devices, console, stop});
                           }),
                HasSubstr("lower optim.lr"));
  });
}

TEST(Ranks, ARerunGivesTheSameBits) {
  auto config = shared_config();
  config.model.dropout = 0.5;
  std::string first, second;
  metrics_with(3, config, &first);
  metrics_with(3, config, &second);
  EXPECT_FALSE(first.empty());
  EXPECT_EQ(first, second);
}

TEST(Ranks, OneThatIsAskedToStopTakesTheOthersWithIt) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  auto config = shared_config();
  config.train.steps = 1'000'000;
  config.train.log_every = 1'000'000;
  config.eval.every = 0;
  const int port = free_port();
  as_processes(3, [&](int rank) {
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    train::Reporter reporter({run, console}, config.monitor,
                             {.rank = rank, .ranks = 3});
    auto world = comm::join(environment_of(rank, 3, port), {});
    std::thread somebody;
    if (rank == 1) {
      somebody = std::thread([&] {
        const run::HeartbeatReader beats(run.heartbeat());
        EXPECT_TRUE(eventually([&] { return beats.read(1)->step >= 3; }));
        ::kill(::getpid(), SIGTERM);
      });
    }
    const auto result =
        train::train(test::resolved(config), {run, reporter, stop, world});
    if (somebody.joinable()) somebody.join();
    EXPECT_EQ(result.stopped_by, SIGTERM);
    write_file(folder.path() / str("steps_", rank), str(result.steps));
    world.close();
  });
  const auto steps = read_file(folder.path() / "steps_1");
  EXPECT_GE(std::stoi(steps), 3);
  EXPECT_EQ(read_file(folder.path() / "steps_0"), steps);
  EXPECT_EQ(read_file(folder.path() / "steps_2"), steps);
}

TEST(Ranks, EvaluateEverySampleOnce) {
  const SmallImages data(53);
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(1);  // before the fork, so not a GPU's
  const auto model =
      models::build({.name = "mlp", .hidden = 16}, {data.spec().shape, 4});
  const auto config = small_config();
  const precision::Policy policy{config::Precision::fp32, torch::kCPU};
  const auto means_of = [&](comm::World& world) {
    const auto task = task_for(data.spec());
    return *train::evaluate(
        *model, data,
        {.loader = data::eval_options(config, {world.rank(), world.size()}),
         .batch = 7,
         .policy = policy,
         .world = world,
         .task = *task});
  };
  const int port = free_port();
  as_processes(4, [&](int rank) {
    auto single = comm::join({}, {});
    const auto alone = means_of(single);
    auto world = comm::join(environment_of(rank, 4, port), {});
    const auto means = means_of(world);
    EXPECT_EQ(means.count, 53);
    EXPECT_EQ(means.find("accuracy"), alone.find("accuracy"));
    EXPECT_NEAR(means.loss, alone.loss, 1e-6);
    world.close();
  });
}

TEST(Ranks, DifferentModelsAreRefusedBeforeTheFirstStep) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  const int port = free_port();
  as_processes(2, [&](int rank) {
    auto config = shared_config();
    if (rank == 1) config.model.hidden += 1;
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    train::Reporter reporter({run, console}, config.monitor,
                             {.rank = rank, .ranks = 2});
    auto world = comm::join(environment_of(rank, 2, port), {});
    EXPECT_THAT(
        error_text(Fault::config,
                   [&] {
                     train::train(test::resolved(config), {run, reporter, stop, world});
                   }),
        HasSubstr("parameter 0 differs between ranks"));
  });
}

TEST(Ranks, ALossThatIsNotFiniteEndsEveryRank) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  auto config = shared_config();
  config.optim.lr = 1e30;
  const int port = free_port();
  as_processes(2, [&](int rank) {
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    train::Reporter reporter({run, console}, config.monitor,
                             {.rank = rank, .ranks = 2});
    auto world = comm::join(environment_of(rank, 2, port), {});
    EXPECT_THAT(
        error_text(Fault::diverged,
                   [&] {
                     train::train(test::resolved(config), {run, reporter, stop, world});
                   }),
        HasSubstr("lower optim.lr"));
  });
}

}  // namespace lockstep::test
