// Parameters that take part in some steps only, and ranks that have no samples in some:
// as PyTorch's own optimizers, in one process over all samples, have it.
#include <algorithm>
#include <filesystem>

#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/detail/flat_optimizers.h"
#include "lockstep/parallel/update.h"
#include "tests/parallel/odd_net.h"

namespace lockstep::test {
namespace {

constexpr double kRate = 0.01, kDecay = 0.1;

// In float64, where sums in another order stay far below what is compared.
OddNet make_double_net(const torch::Device& device = torch::kCPU) {
  auto net = make_net();
  net->to(device, torch::kFloat64);
  return net;
}

Batch make_double_batch(int step, std::int64_t size = 12) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step + 1));
  const auto options = torch::dtype(torch::kFloat64);
  return {torch::empty({size, kIn}, options).normal_(0, 1, generator),
          torch::empty({size, kOut}, options).normal_(0, 1, generator)};
}

// In six of twelve steps nobody uses the branch, in the first one among them.
bool uses_branch(int step) {
  return step % 5 != 0 && step % 4 != 3;
}

std::unique_ptr<torch::optim::Optimizer> pytorchs(config::Optimizer name, OddNet& net) {
  std::vector<Tensor> parameters;
  for (const auto& p : net->parameters()) {
    // A module lists a tied one once for each of its names.
    const bool listed = std::any_of(parameters.begin(), parameters.end(),
                                    [&](const Tensor& one) { return one.is_same(p); });
    if (p.requires_grad() && !listed) parameters.push_back(p);
  }
  namespace to = torch::optim;
  switch (name) {
    case config::Optimizer::adam:
      return std::make_unique<to::Adam>(parameters,
                                        to::AdamOptions(kRate).weight_decay(kDecay));
    case config::Optimizer::sgd:
      return std::make_unique<to::SGD>(
          parameters,
          to::SGDOptions(kRate).weight_decay(kDecay).momentum(0.9).nesterov(true));
    default:
      return std::make_unique<to::AdamW>(parameters,
                                         to::AdamWOptions(kRate).weight_decay(kDecay));
  }
}

// What PyTorch makes of the steps; what was not used has no gradient there.
OddNet trained_by_pytorch(config::Optimizer name, int steps, bool always = false) {
  auto net = make_double_net();
  const auto optimizer = pytorchs(name, net);
  for (int step = 0; step < steps; ++step) {
    for (auto& p : net->parameters()) p.mutable_grad().reset();
    const auto batch = make_double_batch(step);
    loss_of(net, batch, 0, batch.x.size(0), always || uses_branch(step)).backward();
    optimizer->step();
  }
  return net;
}

void expect_near(OddNet& got, OddNet& expected, const std::string& what) {
  const auto theirs = expected->named_parameters();
  for (const auto& item : got->named_parameters()) {
    if (item.value().numel() == 0) continue;
    // A dozen updates of float64, in another order of sums and operations.
    EXPECT_LT((item.value() - theirs[item.key()]).abs().max().item<double>(), 1e-9)
        << item.key() << " " << what;
  }
}

config::OptimConfig config_of(config::Optimizer name) {
  config::OptimConfig config;
  config.name = name;
  config.weight_decay = kDecay;
  config.nesterov = true;
  return config;
}

// A net under the engine and the optimizers of a strategy.
struct Half {
  Half(Communicator& c, config::Optimizer name, int stage) : Half(c, c, name, stage) {}
  Half(Communicator& c, Communicator& cpu, config::Optimizer name, int stage)
      : comm(c),
        net(make_double_net(c.device())),
        engine(*net, {c, cpu}, options(stage)),
        optimizers({config_of(name), {}}, engine, c) {}
  static EngineOptions options(int stage) {
    EngineOptions options;
    options.stage = parallel::kStages[static_cast<std::size_t>(stage)];
    options.layout.first_bucket_bytes = 150;
    options.layout.bucket_bytes = 500;
    options.find_unused_parameters = true;
    return options;
  }
  void step(int step) {
    auto batch = make_double_batch(step);
    batch = {batch.x.to(comm.device()), batch.y.to(comm.device())};
    const auto [begin, end] = even_share(comm, batch.x.size(0));
    engine.zero_gradients();
    loss_of(net, batch, begin, end, uses_branch(step)).backward();
    engine.finish();
    optimizers.step({.lr = kRate});
  }

  Communicator& comm;
  OddNet net;
  Engine engine;
  parallel::detail::FlatOptimizers optimizers;
};

}  // namespace

class UnusedSteps : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, UnusedSteps,
                         ::testing::Values(std::tuple(Rig::local, 1),
                                           std::tuple(Rig::local, 2),
                                           std::tuple(Rig::shm_processes, 2),
                                           std::tuple(Rig::gloo_processes, 3)),
                         name_of_ranks);

// A bias correction by another count of steps is off by 3e-2 here.
TEST_P(UnusedSteps, AreThoseOfPyTorchsOptimizersWithAndWithoutShards) {
  for (const auto name :
       {config::Optimizer::adamw, config::Optimizer::adam, config::Optimizer::sgd}) {
    on_ranks([&](Communicator& c) {
      auto expected = trained_by_pytorch(name, 12);
      for (const int stage : {0, 1, 2}) {
        Half ours(c, name, stage);
        for (int step = 0; step < 12; ++step) ours.step(step);
        expect_near(ours.net, expected,
                    ::lockstep::str(config::name_of(name), " stage ", stage));
      }
    });
  }
}

// A checkpoint has the elements by parameter, and the steps that were not theirs.
TEST_P(UnusedSteps, GoOnFromWhatWasSavedToTheBit) {
  on_ranks([](Communicator& c) {
    for (const int stage : {0, 1, 2}) {
      Half first(c, config::Optimizer::adamw, stage);
      for (int step = 0; step < 6; ++step) first.step(step);
      const auto saved = first.optimizers.unused_steps();
      EXPECT_EQ(saved.size(), 2U) << "weight and bias of the branch";
      EXPECT_EQ(saved.at("branch.weight"), 3);
      Half second(c, config::Optimizer::adamw, stage);
      const torch::NoGradGuard no_grad;
      const auto from = first.optimizers.pieces(/*to_save=*/false);
      const auto to = second.optimizers.pieces(/*to_save=*/false);
      ASSERT_EQ(from.size(), to.size());
      for (std::size_t i = 0; i < to.size(); ++i) to[i].data.copy_(from[i].data);
      second.optimizers.use_unused_steps(saved);
      const torch::AutoGradMode grad(true);
      for (int step = 6; step < 12; ++step) {
        first.step(step);
        second.step(step);
      }
      const auto theirs = first.net->named_parameters();
      for (const auto& item : second.net->named_parameters()) {
        EXPECT_TRUE(torch::equal(item.value(), theirs[item.key()])) << item.key();
      }
    }
  });
}

// The loop of examples/ddp.cpp: an engine, and an optimizer over its buffers.
TEST_P(UnusedSteps, ALoopOfOnesOwnIsRightWhenRankZeroHasNoSamplesInTheFirstStep) {
  on_ranks([](Communicator& c) {
    auto expected = trained_by_pytorch(config::Optimizer::adamw, 8, /*always=*/true);
    auto net = make_double_net();
    Engine engine(*net, {c, c}, {.layout = {150, 500}});
    const auto* place = engine.values(0).const_data_ptr();
    const auto order = engine.order();
    const auto adamw =
        optim::make_optimizer(config_of(config::Optimizer::adamw), engine.values(0));
    for (int step = 0; step < 8; ++step) {
      const auto batch = make_double_batch(step);
      auto [begin, end] = even_share(c, 12);
      if (step == 0 && c.size() > 1) {
        begin = c.rank() == 0 ? 0 : 12 * (c.rank() - 1) / (c.size() - 1);
        end = c.rank() == 0 ? 0 : 12 * c.rank() / (c.size() - 1);
      }
      engine.zero_gradients();
      if (end > begin) loss_of(net, batch, begin, end).backward();
      engine.finish();
      adamw->step(engine.values(0), engine.gradients(0), kRate);
    }
    expect_near(net, expected, ::lockstep::str("of ", c.size(), " ranks"));
    EXPECT_EQ(engine.values(0).const_data_ptr(), place);
    EXPECT_EQ(engine.order(), order);
  });
}

// The same loop, with a branch that some steps do not use.
TEST_P(UnusedSteps, ALoopOfOnesOwnCountsTheStepsOfEachParameter) {
  on_ranks([](Communicator& c) {
    auto expected = trained_by_pytorch(config::Optimizer::adamw, 12);
    for (const int stage : {0, 1}) {
      auto net = make_double_net();
      Engine engine(*net, {c, c}, Half::options(stage));
      std::vector<std::unique_ptr<optim::Optimizer>> optimizers;
      for (const auto& shard : engine.owned()) {
        optimizers.push_back(optim::make_optimizer(
            config_of(config::Optimizer::adamw), shard.of(engine.values(shard.group))));
      }
      for (int step = 0; step < 12; ++step) {
        const auto batch = make_double_batch(step);
        const auto [begin, end] = even_share(c, batch.x.size(0));
        engine.zero_gradients();
        loss_of(net, batch, begin, end, uses_branch(step)).backward();
        for (std::size_t i = 0; i < optimizers.size(); ++i) {
          parallel::update(engine, {*optimizers[i], {.lr = kRate}, i});
        }
        engine.wait_for_values();
      }
      expect_near(net, expected, ::lockstep::str("stage ", stage));
    }
  });
}

namespace {

// A word has a row, of which a batch uses a few.
struct Words : torch::nn::Module {
  explicit Words(bool sparse) {
    table = register_module(
        "table",
        torch::nn::Embedding(torch::nn::EmbeddingOptions(7, 4).sparse(sparse)));
    output = register_module("output", torch::nn::Linear(4, 2));
    const torch::NoGradGuard no_grad;
    auto generator = at::detail::createCPUGenerator(9);
    for (auto& p : parameters()) p.uniform_(-1, 1, generator);
  }
  // Of the words from `first` on, some of which come twice.
  Tensor loss(std::int64_t first, std::int64_t count) {
    const auto words = torch::arange(first, first + count).remainder(5);
    return output(table(words.to(output->weight.device()))).square().sum();
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear output{nullptr};
};

}  // namespace

TEST_P(UnusedSteps, SparseGradientsOfAnEmbeddingAreThoseOfADenseOne) {
  for (const bool views : {true, false}) {
    on_ranks([&](Communicator& c) {
      Words plain(false), sparse(true);
      EngineOptions options;
      options.gradient_as_bucket_view = views;
      Engine engine(sparse, {c, c}, options);
      for (int step = 0; step < 2; ++step) {
        for (auto& p : plain.parameters()) p.mutable_grad().reset();
        plain.loss(0, 6 * c.size()).backward();
        engine.zero_gradients();
        {
          const auto scope = engine.no_sync();
          sparse.loss(6 * c.rank(), 2).backward();
        }
        sparse.loss(6 * c.rank() + 2, 4).backward();
        engine.finish();
        // Sums of a few terms in another order.
        EXPECT_TRUE(torch::allclose(sparse.table->weight.grad(),
                                    plain.table->weight.grad(), 1e-5, 1e-6))
            << views << "\n"
            << sparse.table->weight.grad();
        EXPECT_EQ(sparse.table->weight.grad().layout(), torch::kStrided);
      }
    });
  }
}

// There gradients come into a bucket when it is sent, all together.
TEST(UnusedStepsGpu, SparseGradientsOfAnEmbeddingAreThoseOfADenseOne) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  for (const int ranks : {1, 2}) {
    with_pairs(Rig::local_gpu, ranks, [](Communicator& c, Communicator& cpu) {
      Words plain(false), sparse(true);
      sparse.to(c.device());
      Engine engine(sparse, {c, cpu});
      for (int step = 0; step < 2; ++step) {
        for (auto& p : plain.parameters()) p.mutable_grad().reset();
        plain.loss(0, 6 * c.size()).backward();
        engine.zero_gradients();
        {
          const auto scope = engine.no_sync();
          sparse.loss(6 * c.rank(), 2).backward();
        }
        sparse.loss(6 * c.rank() + 2, 4).backward();
        engine.finish();
        // Sums of a few terms in another order.
        EXPECT_TRUE(torch::allclose(sparse.table->weight.grad().cpu(),
                                    plain.table->weight.grad(), 1e-5, 1e-6));
      }
    });
  }
}

// Launches of their own for each count of steps.
TEST(UnusedStepsGpu, AreThoseOfPyTorchsOptimizers) {
  if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  for (const int ranks : {1, 2}) {
    with_pairs(Rig::local_gpu, ranks, [](Communicator& c, Communicator& cpu) {
      auto expected = trained_by_pytorch(config::Optimizer::adamw, 12);
      for (const int stage : {0, 1}) {
        Half ours(c, cpu, config::Optimizer::adamw, stage);
        for (int step = 0; step < 12; ++step) ours.step(step);
        ours.net->to(torch::kCPU);
        expect_near(ours.net, expected, ::lockstep::str("stage ", stage));
      }
    });
  }
}

}  // namespace lockstep::test
