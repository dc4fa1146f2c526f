// The mlp's backward pass that is written out trains as autograd's does: at every stage
// of ZeRO, and where ranks are threads.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "lockstep/monitor/console.h"
#include "lockstep/storage/safetensors.h"
#include "lockstep/train/device.h"
#include "lockstep/train/replicas.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::test {

namespace {

// Two batches of 17 samples and one of a single sample, which most ranks have none of.
config::Config written_out_config() {
  auto config = small_config();
  config.data.train_samples = 35;
  config.data.eval_samples = 20;
  config.train.epochs = 0;
  config.train.steps = 7;
  config.batch.global = 17;
  config.batch.micro = 17;  // one pass: products that are added up round differently
  config.model.layers = 3;
  config.optim.clip_norm = 0.5;
  config.comm.deterministic = true;
  config.parallel.strategy = config::Strategy::ddp;
  config.parallel.persist_below = 0;
  config.parallel.bucket_bytes = 4000;
  config.parallel.first_bucket_bytes = 1000;
  return config;
}

config::Config at_stage(config::Config config, int stage) {
  if (stage == 0) {
    config.parallel.shard_update = config::ShardUpdate::off;
    return config;
  }
  config.parallel.strategy = config::Strategy::zero;
  config.parallel.zero_stage = stage;
  return config;
}

// The bytes of the weights after training with so many processes.
std::string weights_of_processes(int ranks, const config::Config& config) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  const int port = free_port();
  as_processes(ranks, [&](int rank) {
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    train::Reporter reporter({run, console}, config.monitor,
                             {.rank = rank, .ranks = ranks});
    auto world = comm::join(environment_of(rank, ranks, port), {.config = config.comm});
    train::train(test::resolved(config), {run, reporter, stop, world});
    world.close();
  });
  return read_file(run.path() / "model.safetensors");
}

std::string weights_of_replicas(int ranks, config::Config config) {
  const files::TemporaryDirectory folder;
  config.parallel.strategy = config::Strategy::data_parallel;
  config.parallel.ranks = ranks;
  as_processes(1, [&](int) {
    const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
    monitor::Console console({.write = [](std::string_view) {}});
    const train::StopRequest stop;
    train::train_replicas(test::resolved(config),
                          {run, train::choose_devices(config.parallel), console, stop});
  });
  return read_file(folder.path() / "runs" / "r" / "model.safetensors");
}

std::vector<float> floats_of(const std::string& weights) {
  const auto header = storage::parse_safetensors(
      weights, static_cast<std::int64_t>(weights.size()), "weights");
  const auto begin = static_cast<std::size_t>(header.data_begin);
  std::vector<float> floats((weights.size() - begin) / sizeof(float));
  std::memcpy(floats.data(), weights.data() + begin, floats.size() * sizeof(float));
  return floats;
}

void expect_near_weights(const std::string& one, const std::string& other,
                         const std::string& what) {
  const auto ours = floats_of(one), theirs = floats_of(other);
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  ASSERT_GT(ours.size(), 1000U) << what;
  float worst = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    worst = std::max(worst, std::abs(ours[i] - theirs[i]));
  }
  EXPECT_LT(worst, 1e-5) << what;
}

}  // namespace

TEST(WrittenOutBackward, HasTheBitsOfAutogradsAtEveryStage) {
  for (const int ranks : {2, 3}) {
    auto config = written_out_config();
    config.model.own_backward = false;
    const auto autograds = weights_of_processes(ranks, at_stage(config, 0));
    ASSERT_FALSE(autograds.empty());
    config.model.own_backward = true;
    for (const int stage : {0, 1, 2, 3}) {
      EXPECT_TRUE(weights_of_processes(ranks, at_stage(config, stage)) == autograds)
          << "stage " << stage << " over " << ranks << " ranks";
    }
  }
}

// Passes are added up in another order than autograd's products are.
TEST(WrittenOutBackward, AccumulatesAsAutogradDoesAtEveryStage) {
  auto config = written_out_config();
  config.batch.micro = 3;
  // Steps by the size of the gradient, so that the weights differ by no more than it.
  config.optim.name = config::Optimizer::sgd;
  config.optim.lr = 0.01;
  for (const int ranks : {2, 3}) {
    config.model.own_backward = false;
    const auto autograds = weights_of_processes(ranks, at_stage(config, 0));
    config.model.own_backward = true;
    for (const int stage : {0, 1, 2, 3}) {
      expect_near_weights(weights_of_processes(ranks, at_stage(config, stage)),
                          autograds, str("stage ", stage, " over ", ranks));
    }
  }
}

TEST(WrittenOutBackward, HasTheBitsOfAutogradsWhereRanksAreThreads) {
  for (const int ranks : {2, 3}) {
    auto config = written_out_config();
    config.model.own_backward = false;
    const auto autograds = weights_of_replicas(ranks, config);
    ASSERT_FALSE(autograds.empty());
    config.model.own_backward = true;
    EXPECT_TRUE(weights_of_replicas(ranks, config) == autograds) << ranks;
    config.batch.micro = 3;
    config.optim.name = config::Optimizer::sgd;
    config.optim.lr = 0.01;
    const auto accumulated = weights_of_replicas(ranks, config);
    config.model.own_backward = false;
    expect_near_weights(accumulated, weights_of_replicas(ranks, config),
                        str(ranks, " threads"));
  }
}

}  // namespace lockstep::test
