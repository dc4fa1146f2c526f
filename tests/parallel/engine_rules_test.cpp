// What the engine promises beyond the right sums, and what it refuses.
#include <array>

#include "lockstep/parallel/engine.h"
#include "lockstep/parallel/strategy.h"
#include "tests/comm/ranks.h"
#include "tests/parallel/counting.h"

namespace lockstep::test {
namespace {

using comm::Communicator;
using parallel::Engine;
using parallel::EngineOptions;
using ::testing::HasSubstr;
using torch::Tensor;

// Two layers and a branch for each of two tasks; the same values on every rank.
struct TwoTasks : torch::nn::Module {
  TwoTasks() {
    auto generator = at::detail::createCPUGenerator(3);
    const auto weight = [&](const char* name) {
      return register_parameter(name, torch::randn({4, 4}, generator));
    };
    first = weight("first");
    second = weight("second");
    a = weight("a");
    b = weight("b");
    mask = register_buffer("mask", torch::ones({4}, torch::kBool));
  }
  Tensor loss(const Tensor& task) const {
    const auto x = torch::full({2, 4}, 0.5);
    return x.mm(first).tanh().mm(second).tanh().mm(task).square().sum();
  }
  Tensor first, second, a, b, mask;
};

// Calls `body` when backward comes by.
struct Watch : torch::autograd::Function<Watch> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const std::function<void()>* body) {
    context->saved_data["body"] = reinterpret_cast<std::int64_t>(body);
    return x.clone();
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::tensor_list& gradients) {
    const auto body = context->saved_data["body"].toInt();
    (*reinterpret_cast<const std::function<void()>*>(body))();
    return {gradients[0], Tensor()};
  }
};

// x times the weight, which has no gradient from it.
struct Silent : torch::autograd::Function<Silent> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const Tensor& weight) {
    context->save_for_backward({weight});
    return x.mm(weight);
  }
  static torch::autograd::tensor_list backward(
      torch::autograd::AutogradContext* context,
      const torch::autograd::tensor_list& gradients) {
    return {gradients[0].mm(context->get_saved_variables()[0].t()), Tensor()};
  }
};

// Every bucket one parameter.
EngineOptions small_buckets() {
  EngineOptions options;
  options.layout = {1, 1};
  return options;
}

}  // namespace

// Otherwise nothing would overlap, and every sum would still be right.
TEST(EngineRules, BucketsTravelBeforeTheLastGradientIsThere) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    const auto count = std::make_shared<int>(0);
    CountingCommunicator counting(c, count);
    TwoTasks net;
    net.b.set_requires_grad(false);
    Engine engine(net, {counting, counting}, small_buckets());
    for (int step = 0; step < 2; ++step) {
      engine.zero_gradients();
      int before = 0;
      const std::function<void()> look = [&] { before = *count; };
      const auto x = torch::full({2, 4}, 0.5).requires_grad_();
      const auto h = Watch::apply(x.mm(net.first).tanh(), &look);
      *count = 0;
      h.mm(net.second).tanh().mm(net.a).square().sum().backward();
      // Of `a` and `second`; that of `first` is still to come.
      EXPECT_EQ(before, 2) << "step " << step;
      EXPECT_GE(*count, 3);
    }
  });
}

TEST(EngineRules, ABranchOfTheStepBeforeIsNotAddedAgainAfterZeroGrad) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    TwoTasks net;
    EngineOptions options;
    options.find_unused_parameters = true;
    Engine engine(net, {c, c}, options);
    engine.zero_gradients();
    net.loss(net.a).backward();
    net.zero_grad();  // LibTorch's own, which sets gradients to none
    net.loss(net.b).backward();
    EXPECT_EQ(net.a.grad().abs().max().item<double>(), 0);
    EXPECT_EQ(engine.globally_unused().size(), 1U);
    const TwoTasks alone;
    alone.loss(alone.b).backward();
    EXPECT_TRUE(net.first.grad().allclose(2 * alone.first.grad(), 1e-5, 1e-6));
  });
}

TEST(EngineRules, AGradientThatIsReadyTwiceInAPassIsRefused) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    TwoTasks net;
    Engine engine(net, {c, c}, small_buckets());
    engine.zero_gradients();
    // Backward inside of backward, with a layer that the outer pass has had already.
    const std::function<void()> nested = [&] {
      const at::AutoGradMode with_gradients(true);
      net.loss(net.a).backward();
    };
    const auto x = torch::full({2, 4}, 0.5).requires_grad_();
    const auto h = Watch::apply(x.mm(net.first), &nested);
    EXPECT_THAT(error_text(Fault::config,
                           [&] { (h.mm(net.a).sum() + net.b.sum()).backward(); }),
                HasSubstr("'a' was ready twice"));
  });
}

TEST(EngineRules, AccumulatingBeforeTheSumsAreThereIsRefused) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    TwoTasks net;
    net.b.set_requires_grad(false);
    EngineOptions options;
    options.waits_in_backward = false;
    Engine engine(net, {c, c}, options);
    engine.zero_gradients();
    net.loss(net.a).backward();
    {
      const auto accumulating = engine.no_sync();
      EXPECT_THAT(error_text(Fault::internal, [&] { net.loss(net.a).backward(); }),
                  HasSubstr("before finish()"));
    }
    engine.finish();
  });
}

// As PyTorch has it: its grad() stays as it is.
TEST(EngineRules, AParameterWhoseFunctionHasNoGradientForItIsUnused) {
  for (const int stage : {0, 2}) {
    with_communicators(Rig::local, 2, [&](Communicator& c) {
      TwoTasks net;
      EngineOptions options;
      options.stage = parallel::kStages[static_cast<std::size_t>(stage)];
      options.find_unused_parameters = true;
      Engine engine(net, {c, c}, options);
      engine.zero_gradients();
      const auto x = torch::full({2, 4}, 0.5).mm(net.first).mm(net.second);
      // Each rank has another branch, and no rank a gradient of b.
      if (c.rank() == 0) x.mm(net.a).sum().backward();
      if (c.rank() == 1) Silent::apply(x, net.b).sum().backward();
      engine.finish();
      ASSERT_EQ(engine.globally_unused().size(), 1U) << stage;
      EXPECT_EQ(engine.parameters()[engine.globally_unused()[0]].name, "b");
    });
  }
}

// One rank has samples in the second of two passes only.
TEST(EngineRules, APassMayFollowAnEmptyOneAtOnce) {
  for (const bool waits : {false, true}) {
    std::array<Tensor, 2> sums;
    with_communicators(Rig::local, 2, [&](Communicator& c) {
      TwoTasks net;
      net.b.set_requires_grad(false);
      EngineOptions options;
      options.stage = parallel::kStages[2];
      options.waits_in_backward = waits;
      Engine engine(net, {c, c}, options);
      const auto pass = [&] {
        net.loss(net.a).backward();
        if (!waits) engine.end_pass();
      };
      for (const int passes_of_rank_1 : {1, 2}) {
        engine.zero_gradients(2);
        const bool skips = c.rank() == 1 && passes_of_rank_1 == 1;
        skips ? engine.empty_pass() : pass();
        if (skips && !waits) engine.end_pass();
        pass();
        engine.finish();
        engine.visit_gradients([&](std::size_t i, const Tensor& gradient) {
          const auto at = static_cast<std::size_t>(passes_of_rank_1 - 1);
          if (i == 0 && c.rank() == 0) sums[at] = gradient.clone();
        });
      }
    });
    EXPECT_TRUE(torch::allclose(sums[0] * 4, sums[1] * 3)) << waits;
  }
}

TEST(EngineRules, ALoopForShardsRunsOnOneRank) {
  with_communicators(Rig::local, 1, [](Communicator& c) {
    TwoTasks net;
    net.b.set_requires_grad(false);
    EngineOptions options;
    options.stage = parallel::kStages[2];
    options.waits_in_backward = false;
    Engine engine(net, {c, c}, options);
    engine.zero_gradients(3);
    net.loss(net.a).backward();
    const auto once = net.a.grad().clone();
    engine.end_pass();
    engine.empty_pass();
    engine.end_pass();
    net.loss(net.a).backward();
    engine.finish();
    EXPECT_TRUE(torch::equal(net.a.grad(), once + once));
  });
}

// A causal mask, say.
TEST(EngineRules, BuffersOfAnyDtypeAreRankZeros) {
  with_communicators(Rig::gloo_threads, 2, [](Communicator& c) {
    TwoTasks net;
    net.mask.fill_(c.rank() == 0);
    net.register_buffer("small", torch::full({3}, c.rank(), torch::kInt16));
    const auto spread = net.register_buffer(
        "spread", torch::full({4, 6}, c.rank() + 0.5).t().slice(0, 0, 3));
    const Engine engine(net, {c, c});
    EXPECT_TRUE(net.mask.all().item<bool>());
    EXPECT_EQ(net.named_buffers()["small"].sum().item<int>(), 0);
    EXPECT_TRUE(spread.eq(0.5).all().item<bool>());
  });
}

TEST(EngineRules, CompressedSumsInRankOrderAreTheSameBitsOnEveryBackend) {
  for (const auto compression :
       {parallel::Compression::fp16, parallel::Compression::bf16}) {
    Tensor bits;
    for (const auto rig : {Rig::local, Rig::gloo_threads}) {
      with_communicators(rig, 3, [&](Communicator& c) {
        TwoTasks net;
        net.b.set_requires_grad(false);
        EngineOptions options;
        options.compression = compression;
        options.deterministic = true;
        Engine engine(net, {c, c}, options);
        engine.zero_gradients();
        (net.loss(net.a) * (0.3 + 0.37 * c.rank())).backward();
        if (c.rank() != 0) return;
        if (!bits.defined()) bits = net.second.grad().clone();
        EXPECT_TRUE(net.second.grad().equal(bits)) << name_of(rig);
      });
    }
  }
}

TEST(EngineRules, GroupsKeepTheirPlaceWhateverTheOrder) {
  const std::vector<parallel::Parameter> parameters{
      {"single", torch::ones({3})}, {"double", torch::ones({3}, torch::kFloat64)}};
  for (const auto& order : {std::vector<std::size_t>{0, 1}, {1, 0}}) {
    const auto groups = parallel::plan_layout(parameters, order, {});
    ASSERT_EQ(groups.size(), 2U);
    EXPECT_EQ(groups[0].dtype, torch::kFloat32);
  }
}

// A thread that waits in a part of a communicator is woken by an abort of the whole.
TEST(EngineRules, AbortReachesThePartsBetweenThreads) {
  auto worlds = comm::join_threads({torch::kCPU, torch::kCPU}, {});
  const auto errors = as_threads(2, [&](int rank) {
    auto& world = worlds[static_cast<std::size_t>(rank)];
    const auto part = world.data().split(0);
    if (rank == 1) return world.abort();
    part->barrier();
  });
  ASSERT_TRUE(errors[0].has_value());
  EXPECT_EQ(errors[0]->fault(), Fault::comm);
}

}  // namespace lockstep::test
