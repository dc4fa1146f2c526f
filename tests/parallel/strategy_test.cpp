// The contract of parallel::Strategy, and that all of them compute the same.
#include "lockstep/parallel/strategy.h"

#include "tests/comm/ranks.h"

namespace lockstep::test {
namespace {

using parallel::Strategy;
using torch::Tensor;
namespace nn = torch::nn;

// A convolution, a normalisation, a linear layer, and one parameter in double.
struct TestNet : nn::Module {
  TestNet() {
    conv = register_module("conv", nn::Conv2d(nn::Conv2dOptions(2, 4, 3)));
    norm = register_module("norm", nn::BatchNorm2d(4));
    output = register_module("output", nn::Linear(4 * 4 * 4, 3));
    scale = register_parameter("scale", torch::ones({3}, torch::kFloat64));
    spare = register_parameter("spare", torch::full({5}, 0.5));
  }
  Tensor forward(const Tensor& x, bool with_norm, bool with_spare) {
    auto h = conv(x);
    if (with_norm) h = norm(h);
    auto y = output(h.relu().flatten(1)) * scale;
    if (with_spare) y = y + spare.sum();
    return y;
  }
  nn::Conv2d conv{nullptr};
  nn::BatchNorm2d norm{nullptr};
  nn::Linear output{nullptr};
  Tensor scale, spare;
};

// The same values on every rank: the default generator is the process's.
std::shared_ptr<TestNet> make_test_net() {
  auto net = std::make_shared<TestNet>();
  const torch::NoGradGuard no_grad;
  auto generator = at::detail::createCPUGenerator(17);
  for (auto& p : net->parameters()) p.uniform_(-0.5, 0.5, generator);
  return net;
}

struct Samples {
  Tensor x, y;
};
Samples make_samples(std::uint64_t seed, std::int64_t count) {
  auto generator = at::detail::createCPUGenerator(seed);
  return {torch::empty({count, 2, 6, 6}).normal_(0, 1, generator),
          torch::empty({count, 3}, torch::kFloat64).normal_(0, 1, generator)};
}

config::Config config_for(int ranks) {
  config::Config config;
  config.parallel.strategy =
      ranks == 1 ? config::Strategy::single : config::Strategy::data_parallel;
  config.parallel.bucket_bytes = 300;
  config.parallel.first_bucket_bytes = 100;
  config.optim.lr = 0.01;
  return config;
}

// One rank of a job, as a training loop has it.
struct Rank {
  // Without normalisation: what it computes depends on how the samples are cut.
  Rank(const config::Config& config, comm::World& joined, bool normalises = false)
      : world(joined), net(make_test_net()), with_norm(normalises) {
    for (auto& p : net->norm->parameters()) p.set_requires_grad(with_norm);
    strategy = parallel::make_strategy(config, *net, world);
  }

  // This rank's share of the samples in passes of `most`.
  void step(const Samples& all, std::int64_t begin, std::int64_t end,
            std::int64_t most = 2) {
    strategy->begin_step(std::max<std::int64_t>(1, (end - begin + most - 1) / most));
    auto at = begin;
    while (at < end || (strategy->passes_must_match() && at == begin)) {
      const auto next = std::min(at + most, end);
      Tensor loss;
      strategy->forward([&] {
        const auto y = net->forward(all.x.slice(0, at, next), with_norm, with_spare);
        loss = (y - all.y.slice(0, at, next)).square().sum();
      });
      strategy->backward(
          loss * (wanted.loss_scale / static_cast<double>(all.x.size(0))), next == end);
      if (next == end) break;
      at = next;
    }
    strategy->finish();
    updated = strategy->update(wanted);
  }
  void step(const Samples& all) {
    const auto n = all.x.size(0);
    step(all, n * world.rank() / world.size(), n * (world.rank() + 1) / world.size());
  }

  Tensor flat() const {
    std::vector<Tensor> parts;
    for (const auto& p : net->parameters()) {
      const auto whole = strategy->full_parameter(p).flatten();
      parts.push_back(whole.to(torch::kFloat64, false, /*copy=*/true));
    }
    return torch::cat(parts);
  }

  comm::World& world;
  std::shared_ptr<TestNet> net;
  bool with_norm;
  std::unique_ptr<Strategy> strategy;
  bool with_spare = true;
  parallel::Update wanted{.lr = 0.01};
  parallel::Updated updated;
};

void on_threads(int ranks, const std::function<void(comm::World&)>& body) {
  auto worlds = comm::join_threads(
      std::vector<torch::Device>(static_cast<std::size_t>(ranks), torch::kCPU), {});
  const auto errors = as_threads(ranks, [&](int rank) {
    auto& world = worlds[static_cast<std::size_t>(rank)];
    try {
      body(world);
    } catch (...) {
      world.abort();
      throw;
    }
  });
  for (const auto& error : errors) EXPECT_FALSE(error.has_value()) << error->what();
}

void expect_same_bits(Rank& rank, const std::string& when) {
  const auto own = rank.flat();
  const auto first = own.clone();
  rank.world.cpu().broadcast(first, 0).wait();
  EXPECT_TRUE(own.equal(first)) << "rank " << rank.world.rank() << " " << when;
}

// Who holds what: ddp whole and sharded, and the stages of ZeRO.
std::vector<config::ParallelConfig> holders(const config::ParallelConfig& like) {
  std::vector<config::ParallelConfig> all;
  for (const auto sharded : {config::ShardUpdate::off, config::ShardUpdate::on}) {
    all.push_back(like);
    all.back().strategy = config::Strategy::data_parallel;
    all.back().shard_update = sharded;
  }
  for (const int stage : {1, 2, 3}) {
    all.push_back(like);
    all.back().strategy = config::Strategy::zero;
    all.back().zero_stage = stage;
  }
  return all;
}

Tensor alone_after(int steps, const config::Config& config, std::int64_t samples = 12) {
  auto world = comm::join({}, {});
  Rank rank(config, world);
  for (int i = 0; i < steps; ++i) {
    rank.step(make_samples(static_cast<std::uint64_t>(i), samples));
  }
  return rank.flat();
}

}  // namespace

TEST(Strategy, AnyNumberOfRanksComesToTheSameParameters) {
  for (const auto optimizer : {config::Optimizer::sgd, config::Optimizer::adamw}) {
    auto config = config_for(1);
    config.optim.name = optimizer;
    const auto expected = alone_after(10, config);
    for (const int ranks : {1, 2, 3, 4}) {
      config.parallel.strategy = config::Strategy::data_parallel;
      on_threads(ranks, [&](comm::World& world) {
        Rank rank(config, world);
        for (int i = 0; i < 10; ++i) {
          rank.step(make_samples(static_cast<std::uint64_t>(i), 12));
          expect_same_bits(rank, ::lockstep::str("after step ", i));
        }
        // Ten updates of 0.01 with sums of 12 terms in another order: an update of
        // AdamW can differ by the relative error of its gradient, some 1e-6.
        EXPECT_TRUE(rank.flat().allclose(expected, 1e-5, 1e-6))
            << ranks << " ranks: " << (rank.flat() - expected).abs().max();
      });
    }
  }
}

// Whole or sharded, on one rank or on three: one norm over all gradients.
TEST(Strategy, ClippingAveragesAndOptionsAreThoseOfOneRank) {
  auto config = config_for(1);
  config.optim.clip_norm = 0.05;
  config.optim.clip_value = 0.02;
  config.optim.no_decay = "auto";
  config.optim.weight_decay = 0.3;
  config.optim.layer_decay = 0.5;
  config.ema.enabled = true;
  config.ema.decay = 0.5;
  Tensor weights, average, norm;
  const auto train = [&](Rank& rank) {
    for (int i = 0; i < 5; ++i) rank.step(make_samples(static_cast<unsigned>(i), 12));
    EXPECT_GT(rank.updated.norm.item<double>(), 0.05) << "is clipped";
  };
  on_threads(1, [&](comm::World& world) {
    Rank rank(config, world);
    train(rank);
    norm = rank.updated.norm.clone();
    weights = rank.flat();
    rank.strategy->average()->use(true);
    average = rank.flat();
    EXPECT_FALSE(torch::equal(weights, average));
    rank.strategy->average()->use(false);
    EXPECT_TRUE(torch::equal(weights, rank.flat()));
  });
  for (const auto& holder : holders(config.parallel)) {
    config.parallel = holder;
    on_threads(3, [&](comm::World& world) {
      Rank rank(config, world);
      SCOPED_TRACE(rank.strategy->name());
      train(rank);
      // Sums of 12 terms in another order; see above.
      EXPECT_TRUE(rank.updated.norm.allclose(norm, 1e-6, 0));
      EXPECT_TRUE(rank.flat().allclose(weights, 1e-5, 1e-6));
      const auto own = rank.flat();
      rank.strategy->average()->use(true);
      EXPECT_TRUE(rank.flat().allclose(average, 1e-5, 1e-6));
      expect_same_bits(rank, "the average");
      rank.strategy->average()->use(false);
      EXPECT_TRUE(torch::equal(rank.flat(), own));
    });
  }
}

TEST(Strategy, OptionsChangeTheResult) {
  const auto with = [](void (*set)(config::Config&)) {
    auto config = config_for(1);
    config.optim.weight_decay = 0.3;
    if (set != nullptr) set(config);
    return alone_after(3, config);
  };
  const auto plain = with(nullptr);
  EXPECT_FALSE(plain.equal(with([](auto& c) { c.optim.no_decay = "auto"; })));
  EXPECT_FALSE(plain.equal(with([](auto& c) { c.optim.layer_decay = 0.5; })));
  EXPECT_FALSE(plain.equal(with([](auto& c) { c.optim.clip_norm = 0.01; })));
  EXPECT_FALSE(plain.equal(with([](auto& c) { c.optim.clip_value = 0.001; })));
}

// The overflow is on one rank only; the sums show it to all, also to those whose shard
// it is not in.
TEST(Strategy, AStepWithAGradientThatIsNotFiniteIsSkippedByAllRanks) {
  auto config = config_for(3);
  for (const auto& holder : holders(config.parallel)) {
    config.parallel = holder;
    on_threads(3, [&](comm::World& world) {
      Rank rank(config, world);
      SCOPED_TRACE(rank.strategy->name());
      rank.wanted.skips_nonfinite = true;
      auto samples = make_samples(1, 12);
      rank.step(samples);
      EXPECT_FALSE(rank.updated.skipped);
      const auto before = rank.flat();
      if (world.rank() == 1) samples.y[5] = std::numeric_limits<double>::infinity();
      rank.step(samples);
      EXPECT_TRUE(rank.updated.skipped);
      EXPECT_TRUE(torch::equal(rank.flat(), before));
    });
  }
}

TEST(Strategy, AScaledLossGivesTheSameUpdate) {
  auto config = config_for(1);
  config.optim.clip_norm = 0.05;
  Tensor expected;
  for (const double scale : {1.0, 1024.0}) {
    on_threads(1, [&](comm::World& world) {
      Rank rank(config, world);
      rank.wanted.loss_scale = scale;
      for (int i = 0; i < 3; ++i) rank.step(make_samples(static_cast<unsigned>(i), 12));
      if (scale == 1) expected = rank.flat();
      EXPECT_TRUE(rank.flat().allclose(expected, 1e-6, 1e-7)) << scale;
    });
  }
}

// However gradients are kept and sent, the result is the same; compressed ones are
// rounded once, by 2^-11 and 2^-8 of themselves, and ten steps of sgd are as good as
// their gradients.
TEST(Strategy, KnobsOfTheExchangeDoNotChangeTheResult) {
  struct Case {
    const char* name;
    void (*set)(config::Config&);
    double error;
  };
  const Case cases[] = {
      {"no views", [](auto& c) { c.parallel.gradient_as_bucket_view = false; }, 1e-6},
      {"static", [](auto& c) { c.parallel.static_graph = true; }, 1e-6},
      {"deterministic", [](auto& c) { c.comm.deterministic = true; }, 1e-6},
      {"sharded", [](auto& c) { c.parallel.shard_update = config::ShardUpdate::on; },
       1e-6},
      {"one bucket", [](auto& c) { c.parallel.bucket_bytes = 1 << 30; }, 1e-6},
      {"fp16", [](auto& c) { c.parallel.compression = config::Compression::fp16; },
       1e-3},
      {"bf16", [](auto& c) { c.parallel.compression = config::Compression::bf16; },
       1e-2}};
  auto config = config_for(1);
  config.optim.name = config::Optimizer::sgd;
  const auto expected = alone_after(10, config);
  for (const auto& one : cases) {
    auto changed = config;
    changed.parallel.strategy = config::Strategy::data_parallel;
    one.set(changed);
    on_threads(3, [&](comm::World& world) {
      Rank rank(changed, world);
      for (int i = 0; i < 10; ++i) {
        rank.step(make_samples(static_cast<std::uint64_t>(i), 12));
      }
      const auto difference = (rank.flat() - expected).abs().max().item<double>();
      EXPECT_LT(difference, one.error) << one.name;
      const bool rounds = changed.parallel.compression != config::Compression::none;
      EXPECT_TRUE(!rounds || difference > 1e-6) << one.name << " was not used";
    });
  }
}

TEST(Strategy, SaysItsName) {
  auto world = comm::join({}, {});
  EXPECT_EQ(Rank(config_for(1), world).strategy->name(), "single");
  auto config = config_for(2);
  EXPECT_EQ(Rank(config, world).strategy->name(), "data_parallel");
  config.parallel.strategy = config::Strategy::ddp;
  EXPECT_EQ(Rank(config, world).strategy->name(), "ddp");
}

TEST(Strategy, SingleIsRefusedForSeveralRanks) {
  on_threads(2, [&](comm::World& world) {
    EXPECT_THAT(error_text(Fault::config, [&] { Rank(config_for(1), world); }),
                ::testing::HasSubstr("set parallel.strategy=ddp"));
  });
}

// What the optimizer remembers goes with the parameters when the buckets are laid out
// by the observed order, also when that shows late: rank 0 had nothing to do before.
TEST(Strategy, StateFollowsALateChangeOfTheLayout) {
  const auto expected = alone_after(6, config_for(1));
  on_threads(2, [&](comm::World& world) {
    Rank rank(config_for(2), world);
    for (int i = 0; i < 6; ++i) {
      const auto samples = make_samples(static_cast<std::uint64_t>(i), 12);
      const bool idle = i < 3 && world.rank() == 0;
      rank.step(samples, i < 3 || world.rank() == 0 ? 0 : 6,
                idle ? 0 : (i < 3 || world.rank() == 1 ? 12 : 6));
    }
    EXPECT_TRUE(rank.flat().allclose(expected, 1e-5, 1e-6))
        << (rank.flat() - expected).abs().max();
  });
}

TEST(Strategy, AParameterThatIsNeverUsedStaysAsItIsInAStaticGraphToo) {
  for (const int ranks : {1, 2}) {
    auto config = config_for(2);
    config.parallel.find_unused_parameters = true;
    config.parallel.static_graph = true;
    on_threads(ranks, [&](comm::World& world) {
      Rank rank(config, world);
      rank.with_spare = false;
      const auto before = rank.net->spare.detach().clone();
      for (int i = 0; i < 4; ++i) rank.step(make_samples(1, 8));
      EXPECT_TRUE(rank.net->spare.equal(before));
    });
  }
}

// Weight decay and momentum would move it otherwise.
TEST(Strategy, AParameterThatNoRankUsesStaysAsItIs) {
  for (const int ranks : {1, 2}) {
    auto config = config_for(2);
    config.parallel.find_unused_parameters = true;
    on_threads(ranks, [&](comm::World& world) {
      Rank rank(config, world, /*normalises=*/true);
      for (int i = 0; i < 3; ++i) rank.step(make_samples(1, 8));
      rank.with_spare = false;
      const auto before = rank.net->spare.detach().clone();
      const auto used = rank.net->output->weight.detach().clone();
      for (int i = 0; i < 3; ++i) rank.step(make_samples(2, 8));
      EXPECT_TRUE(rank.net->spare.equal(before));
      EXPECT_FALSE(rank.net->output->weight.equal(used));
      // One rank's use is enough.
      rank.with_spare = world.rank() == 0;
      rank.step(make_samples(3, 8));
      EXPECT_FALSE(rank.net->spare.equal(before));
      expect_same_bits(rank, "after a step in which rank 0 used it");
    });
  }
}

TEST(Strategy, BuffersAreRankZerosBeforeEachStepOrWhenShared) {
  for (const bool each_step : {true, false}) {
    auto config = config_for(2);
    config.parallel.broadcast_buffers = each_step;
    config.parallel.find_unused_parameters = true;
    on_threads(2, [&](comm::World& world) {
      Rank rank(config, world, /*normalises=*/true);
      rank.step(make_samples(1, 8));
      const auto spread = [&] {
        const auto own = rank.net->norm->running_mean.clone();
        world.cpu().broadcast(own, 0).wait();
        return (own - rank.net->norm->running_mean).abs().max().item<double>();
      };
      // Each rank saw other samples.
      if (world.rank() == 1) {
        EXPECT_GT(spread(), 1e-4);
      } else {
        spread();
      }
      rank.strategy->begin_step();
      if (world.rank() == 1 && !each_step) {
        EXPECT_GT(spread(), 1e-4);
      } else if (each_step) {
        EXPECT_EQ(spread(), 0);
      } else {
        spread();
      }
      rank.strategy->share_buffers();
      EXPECT_EQ(spread(), 0);
    });
  }
}

// With statistics of all ranks, normalisation does not depend on the cut any more. Rank
// 0 has no samples at all in the second step.
TEST(Strategy, SyncBatchNormIsBatchNormOfTheWholeBatch) {
  auto config = config_for(1);
  config.parallel.sync_batch_norm = true;
  // Not adamw: the gradient of a bias before a normalisation is zero but for rounding,
  // of which adamw makes whole steps.
  config.optim.name = config::Optimizer::sgd;
  Tensor expected, mean;
  {
    auto world = comm::join({}, {});
    Rank rank(config, world, /*normalises=*/true);
    EXPECT_FALSE(rank.strategy->passes_must_match());
    for (std::uint64_t i = 0; i < 4; ++i) rank.step(make_samples(i, 9), 0, 9, 9);
    expected = rank.flat();
    mean = rank.net->norm->running_mean.clone();
  }
  const auto like = config.parallel;
  for (const auto& [ranks, holder] : std::vector<std::pair<int, std::size_t>>{
           {2, 0}, {3, 1}, {2, 2}, {3, 2}, {2, 3}, {3, 3}, {2, 4}, {3, 4}}) {
    config.parallel = holders(like)[holder];
    on_threads(ranks, [&, ranks = ranks](comm::World& world) {
      Rank rank(config, world, /*normalises=*/true);
      SCOPED_TRACE(rank.strategy->name());
      EXPECT_TRUE(rank.strategy->passes_must_match());
      for (std::uint64_t i = 0; i < 4; ++i) {
        const auto samples = make_samples(i, 9);
        const int busy = i == 1 ? ranks - 1 : ranks;
        const auto at = std::max(world.rank() - (ranks - busy), 0);
        const bool idle = world.rank() < ranks - busy;
        rank.step(samples, idle ? 0 : 9 * at / busy, idle ? 0 : 9 * (at + 1) / busy, 9);
        expect_same_bits(rank, ::lockstep::str("after step ", i));
      }
      EXPECT_TRUE(
          rank.flat().allclose(expected, 1e-4, 1e-5))  // as above, through 1/std
          << ranks << " ranks: " << (rank.flat() - expected).abs().max();
      EXPECT_TRUE(rank.net->norm->running_mean.allclose(mean, 1e-5, 1e-6));
    });
  }
}

TEST(Strategy, BadGradientsAreNamed) {
  auto world = comm::join({}, {});
  Rank rank(config_for(1), world, /*normalises=*/true);
  rank.step(make_samples(1, 4));
  EXPECT_TRUE(parallel::bad_gradients(*rank.strategy).empty());
  rank.net->scale.mutable_grad()[1] = std::nan("");
  EXPECT_THAT(parallel::bad_gradients(*rank.strategy), ::testing::ElementsAre("scale"));
  EXPECT_EQ(parallel::count_elements(rank.strategy->parameters()),
            4 * 2 * 9 + 4 + 4 + 4 + 64 * 3 + 3 + 3 + 5);
}

}  // namespace lockstep::test
