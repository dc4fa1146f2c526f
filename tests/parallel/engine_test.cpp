// Gradients over ranks are the gradients of the whole batch.
#include "lockstep/parallel/engine.h"

#include <filesystem>
#include <mutex>

#include "lockstep/comm/local.h"
#include "lockstep/comm/modelled.h"
#include "tests/comm/ranks.h"

namespace lockstep::test {

using comm::Communicator;
using comm::Pending;
using parallel::Engine;
using parallel::EngineOptions;
using ::testing::AllOf;
using ::testing::HasSubstr;
using torch::Tensor;

namespace {

constexpr std::int64_t kIn = 6, kOut = 3;

// A network with what real ones have: a tied weight, a frozen one, a branch that may be
// left out, a scalar, an empty parameter, a transposed one.
struct OddNetImpl : torch::nn::Module {
  OddNetImpl() {
    first = register_module("first", torch::nn::Linear(kIn, kIn));
    branch = register_module("branch", torch::nn::Linear(kIn, kIn));
    frozen = register_module("frozen", torch::nn::Linear(kIn, kIn));
    last = register_module("last", torch::nn::Linear(kIn, kOut));
    scale = register_parameter("scale", torch::ones({}));
    empty = register_parameter("empty", torch::zeros({0, 4}));
    turned = register_parameter("turned", torch::randn({kIn, kIn}).mul_(0.1).t());
    tied = register_parameter("tied", first->weight);
    frozen->weight.requires_grad_(false);
  }

  Tensor forward(const Tensor& x, bool with_branch = true) {
    auto h = torch::relu(first->forward(x));
    if (with_branch) h = h + torch::tanh(branch->forward(h));
    h = torch::linear(h, tied) * scale + torch::mm(frozen->forward(h), turned);
    return last->forward(h) + empty.sum();
  }

  torch::nn::Linear first{nullptr}, branch{nullptr}, frozen{nullptr}, last{nullptr};
  Tensor scale, empty, turned, tied;
};
TORCH_MODULE(OddNet);

// The generator is the process's, and ranks may be threads of it. Not manual_seed(): it
// seeds GPUs, too, which a process that is forked afterwards can not use any more.
OddNet make_net(int seed = 5) {
  static std::mutex one_at_a_time;
  const std::lock_guard lock(one_at_a_time);
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(static_cast<std::uint64_t>(seed));
  return OddNet();
}

struct Batch {
  Tensor x, y;
};

Batch make_batch(std::int64_t size) {
  auto generator = at::detail::createCPUGenerator(11);
  return {torch::randn({size, kIn}, generator), torch::randn({size, kOut}, generator)};
}

// The loss of a share: a sum, divided by the size of the whole batch.
Tensor loss_of(OddNet& net, const Batch& batch, std::int64_t begin, std::int64_t end,
               bool with_branch = true) {
  const auto n = end - begin;
  const auto out = net->forward(batch.x.narrow(0, begin, n), with_branch);
  return (out - batch.y.narrow(0, begin, n)).pow(2).sum() /
         static_cast<double>(batch.x.size(0));
}

// Throws in the middle of the backward pass.
struct Explosion : torch::autograd::Function<Explosion> {
  static Tensor forward(torch::autograd::AutogradContext*, const Tensor& x) {
    return x.clone();
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               const torch::autograd::tensor_list&) {
    throw std::runtime_error("no memory, say");
  }
};

Tensor failing_loss_of(OddNet& net, const Batch& batch) {
  const auto h = Explosion::apply(torch::relu(net->first->forward(batch.x)));
  return net->last->forward(h).sum();
}

std::vector<std::pair<std::string, Tensor>> gradients_of(OddNet& net) {
  std::vector<std::pair<std::string, Tensor>> list;
  for (const auto& item : net->named_parameters()) {
    if (item.value().requires_grad()) {
      list.emplace_back(item.key(), item.value().grad().cpu().clone());
    }
  }
  return list;
}

// In the ranks, not before they are forked: autograd's threads do not survive that.
std::vector<std::pair<std::string, Tensor>> whole_gradients(const Batch& batch) {
  auto net = make_net();
  loss_of(net, batch, 0, batch.x.size(0)).backward();
  return gradients_of(net);
}

void expect_close(OddNet& net,
                  const std::vector<std::pair<std::string, Tensor>>& expected,
                  double scale = 1) {
  const auto got = gradients_of(net);
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    // Sums of a few dozen float32 terms in another order.
    EXPECT_TRUE(torch::allclose(got[i].second, expected[i].second * scale, 1e-5, 1e-6))
        << expected[i].first << "\n"
        << got[i].second << "\n"
        << expected[i].second;
  }
}

// What every test does: a net and an engine on each rank.
struct RankRig {
  RankRig(Communicator& c, const EngineOptions& options)
      : net(make_net(5 + c.rank())), engine(*net, c, c, options) {}
  OddNet net;
  Engine engine;
};

std::pair<std::int64_t, std::int64_t> even_share(const Communicator& c,
                                                 std::int64_t n) {
  return {n * c.rank() / c.size(), n * (c.rank() + 1) / c.size()};
}

}  // namespace

class EngineTest : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

std::string name_of_ranks(const ::testing::TestParamInfo<std::tuple<Rig, int>>& ranks) {
  return str(name_of(std::get<0>(ranks.param)), std::get<1>(ranks.param));
}

INSTANTIATE_TEST_SUITE_P(Ranks, EngineTest,
                         ::testing::Values(std::tuple(Rig::local, 1),
                                           std::tuple(Rig::local, 3),
                                           std::tuple(Rig::gloo_processes, 2),
                                           std::tuple(Rig::gloo_processes, 4),
                                           std::tuple(Rig::shm_processes, 2),
                                           std::tuple(Rig::shm_processes, 3)),
                         name_of_ranks);

TEST_P(EngineTest, GradientsAreThoseOfTheWholeBatch) {
  const auto batch = make_batch(13);
  for (const std::int64_t bucket_bytes : {1L, 300L, 25L << 20}) {
    on_ranks([&](Communicator& c) {
      const auto expected = whole_gradients(batch);
      RankRig rig(c, {.layout = {bucket_bytes / 2 + 1, bucket_bytes}});
      const auto [begin, end] = even_share(c, 13);
      for (int step = 0; step < 3; ++step) {
        rig.engine.zero_gradients();
        loss_of(rig.net, batch, begin, end).backward();
        expect_close(rig.net, expected);
      }
    });
  }
}

TEST_P(EngineTest, UnequalAndEmptySharesAddUp) {
  const auto batch = make_batch(9);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {});
    // The last rank has nearly all samples, the first none (if there are others).
    const std::int64_t begin = c.rank() == c.size() - 1 && c.size() > 1
                                   ? c.size() - 2
                                   : std::max(0, c.rank() - 1);
    const std::int64_t end = c.rank() == c.size() - 1 ? 9 : c.rank();
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      if (end > begin) loss_of(rig.net, batch, begin, end).backward();
      rig.engine.finish();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, NoSyncAccumulatesAndTheLastPassExchangesAll) {
  const auto batch = make_batch(12);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.layout = {100, 400}});
    const auto [begin, end] = even_share(c, 12);
    const auto middle = begin + 1;
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      {
        const auto scope = rig.engine.no_sync();
        loss_of(rig.net, batch, begin, middle).backward();
      }
      loss_of(rig.net, batch, middle, end).backward();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, SeveralBackwardPassesOfOneStepAddUp) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.layout = {100, 400}});
    const auto [begin, end] = even_share(c, 8);
    rig.engine.zero_gradients();
    for (int pass = 0; pass < 3; ++pass) {
      loss_of(rig.net, batch, begin, end).backward();
    }
    expect_close(rig.net, expected, 3);
  });
}

TEST_P(EngineTest, SeveralForwardPassesBeforeOneBackward) {
  const auto batch = make_batch(10);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {});
    const auto [begin, end] = even_share(c, 10);
    const auto middle = (begin + end) / 2;
    const auto one = loss_of(rig.net, batch, begin, middle);
    const auto two = loss_of(rig.net, batch, middle, end);
    (one + two).backward();
    expect_close(rig.net, expected);
  });
}

TEST_P(EngineTest, AllRanksHaveTheSameBitsAndRankZerosStart) {
  const auto batch = make_batch(13);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.layout = {100, 400}});
    const auto [begin, end] = even_share(c, 13);
    loss_of(rig.net, batch, begin, end).backward();
    for (auto* tensor : {&rig.engine.values(0), &rig.engine.gradients(0)}) {
      const auto all = torch::empty({c.size() * tensor->numel()});
      c.all_gather(all, *tensor).wait();
      const auto rows = all.view({c.size(), -1});
      for (int r = 0; r < c.size(); ++r) EXPECT_TRUE(torch::equal(rows[r], rows[0]));
    }
  });
}

TEST_P(EngineTest, TheOrderOfTheBucketsFollowsTheFirstPass) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.layout = {100, 400}});
    int called = 0;
    rig.engine.on_relayout([&] { ++called; });
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end).backward();
    }
    EXPECT_EQ(called, 1);
    // The last layer's gradients come first.
    const auto& first = rig.engine.layout()[0].slots[0];
    EXPECT_THAT(rig.engine.parameters()[first.parameter].name,
                ::testing::AnyOf(HasSubstr("last"), HasSubstr("empty")));
    for (const auto& [name, tensor] : rig.engine.parameters()) {
      EXPECT_TRUE(tensor.is_alias_of(rig.engine.values(0))) << name;
      EXPECT_TRUE(tensor.grad().is_alias_of(rig.engine.gradients(0))) << name;
    }
  });
}

TEST_P(EngineTest, GradientsThatWereReplacedComeBackAsViews) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      rig.net->zero_grad();  // sets them to none
      loss_of(rig.net, batch, begin, end).backward();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, GradientsWithMemoryOfTheirOwn) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.gradient_as_bucket_view = false});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end).backward();
      expect_close(rig.net, expected);
      EXPECT_FALSE(rig.net->scale.grad().is_alias_of(rig.engine.gradients(0)));
    }
  });
}

TEST_P(EngineTest, AnUnusedParameterIsNamedWithItsRanks) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {});
    const auto [begin, end] = even_share(c, 8);
    const bool branch = c.rank() != c.size() - 1;
    const auto text = error_text(
        Fault::config, [&] { loss_of(rig.net, batch, begin, end, branch).backward(); });
    EXPECT_THAT(text, AllOf(HasSubstr("'branch.weight' on "),
                            HasSubstr("find_unused_parameters")));
    if (c.size() > 1) {
      EXPECT_THAT(text, HasSubstr(str("'branch.bias' on rank ", c.size() - 1)));
    }
  });
}

TEST_P(EngineTest, WithTheFlagAParameterUsedOnOneRankIsReducedRight) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.find_unused_parameters = true});
    const auto [begin, end] = even_share(c, 8);
    // What the whole would be: every rank's own graph, summed.
    auto reference = make_net(5);
    for (int r = 0; r < c.size(); ++r) {
      const auto b = 8L * r / c.size(), e = 8L * (r + 1) / c.size();
      loss_of(reference, batch, b, e, r == 0).backward();
    }
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end, c.rank() == 0).backward();
      expect_close(rig.net, gradients_of(reference));
      EXPECT_TRUE(rig.engine.globally_unused().empty());
    }
    rig.engine.zero_gradients();
    loss_of(rig.net, batch, begin, end, false).backward();
    EXPECT_EQ(rig.engine.globally_unused().size(), 2U) << "branch: weight and bias";
    EXPECT_TRUE(rig.net->branch->weight.grad().eq(0).all().item<bool>());
  });
}

TEST_P(EngineTest, CompressedGradientsAreWithinTheStatedError) {
  const auto batch = make_batch(8);
  for (const auto& [how, error] : {std::pair(parallel::Compression::fp16, 1 / 2048.0),
                                   std::pair(parallel::Compression::bf16, 1 / 256.0)}) {
    on_ranks([&, how = how, error = error](Communicator& c) {
      const auto expected = whole_gradients(batch);
      RankRig rig(c, {.compression = how});
      const auto [begin, end] = even_share(c, 8);
      loss_of(rig.net, batch, begin, end).backward();
      const auto got = gradients_of(rig.net);
      for (std::size_t i = 0; i < got.size(); ++i) {
        if (got[i].second.numel() == 0) continue;
        // One rounding of each summand and one of each partial sum.
        const auto bound = 2 * c.size() * error * expected[i].second.abs().max() + 1e-6;
        EXPECT_TRUE(
            (got[i].second - expected[i].second).abs().le(bound).all().item<bool>())
            << got[i].first;
      }
    });
  }
}

TEST_P(EngineTest, APassThatReachesSomeBucketsDoesNotSumTheOthersAgain) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.layout = {1, 1}, .find_unused_parameters = true});
    auto reference = make_net(5);
    loss_of(reference, batch, 0, 8, true).backward();
    loss_of(reference, batch, 0, 8, false).backward();
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end, true).backward();
      loss_of(rig.net, batch, begin, end, false).backward();
      expect_close(rig.net, gradients_of(reference));
    }
  });
}

TEST_P(EngineTest, GradientsThatWereDroppedAreNotAddedTo) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.layout = {100, 400}});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {
      rig.net->zero_grad();  // sets them to none, and the engine is not told
      loss_of(rig.net, batch, begin, end).backward();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, NothingOfAnEarlierStepIsLeft) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.find_unused_parameters = true});
    const auto [begin, end] = even_share(c, 8);
    loss_of(rig.net, batch, begin, end).backward();
    rig.engine.zero_gradients();
    rig.engine.finish();  // a step in which no rank has samples
    EXPECT_TRUE(rig.engine.gradients(0).eq(0).all().item<bool>());
    EXPECT_EQ(rig.engine.globally_unused().size(), rig.engine.parameters().size());
  });
}

TEST_P(EngineTest, APassThatFailsOnOneRankHoldsUpNobody) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {.layout = {1, 100}});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      if (step == 1 && c.rank() == 0) {
        EXPECT_THROW(failing_loss_of(rig.net, batch).backward(), std::runtime_error);
        // Not in the middle of a pass.
        error_text(Fault::internal, [&] { rig.engine.zero_gradients(); });
        EXPECT_THAT(error_text(Fault::internal,
                               [&] { loss_of(rig.net, batch, 0, 1).backward(); }),
                    HasSubstr("failed; call finish()"));
      } else {
        loss_of(rig.net, batch, begin, end).backward();
      }
      rig.engine.finish();
      if (step != 1) expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, AfterTheErrorForUnusedParametersItGoesOn) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    RankRig rig(c, {});
    const auto [begin, end] = even_share(c, 8);
    error_text(Fault::config,
               [&] { loss_of(rig.net, batch, begin, end, false).backward(); });
    for (int step = 0; step < 2; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end).backward();
      expect_close(rig.net, expected);
    }
  });
}

TEST_P(EngineTest, BucketsAreStampedInTheOrderInWhichTheyStart) {
  const auto batch = make_batch(8);
  on_ranks([&](Communicator& c) {
    RankRig rig(c, {.layout = {1, 1}});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {
      rig.engine.zero_gradients();
      loss_of(rig.net, batch, begin, end).backward();
      const auto& times = rig.engine.times();
      ASSERT_EQ(times.ready.size(), rig.engine.parameters().size());
      EXPECT_TRUE(std::is_sorted(times.ready.begin(), times.ready.end()));
      EXPECT_GT(times.ready[0], 0);
      EXPECT_EQ(times.last_ready, times.ready.back());
      EXPECT_GE(times.waited, 0);
      EXPECT_TRUE(rig.engine.device_times().ready.empty()) << "there is no device";
    }
  });
}

// With `local`, two replicas on one GPU: autograd has one thread for both, so whoever
// waited in it for the other would wait for ever.
class EngineGpuTest : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void SetUp() override {
    // Not torch::cuda::is_available(): a process that forks must not have used it.
    if (!std::filesystem::exists("/dev/nvidiactl")) GTEST_SKIP() << "no GPU";
  }

  using Body = std::function<void(Communicator&, OddNet&, Engine&, const Batch&)>;
  void on_ranks(const EngineOptions& options, const Body& body) const {
    const auto batch = make_batch(13);
    with_pairs(std::get<0>(GetParam()), std::get<1>(GetParam()),
               [&](Communicator& c, Communicator& cpu) {
                 const torch::Device gpu(torch::kCUDA, 0);
                 auto net = make_net(5 + c.rank());
                 net->to(gpu);
                 Engine engine(*net, c, cpu, options);
                 body(c, net, engine, {batch.x.to(gpu), batch.y.to(gpu)});
               });
  }
};

INSTANTIATE_TEST_SUITE_P(Ranks, EngineGpuTest,
                         ::testing::Values(std::tuple(Rig::local_gpu, 1),
                                           std::tuple(Rig::local_gpu, 2),
                                           std::tuple(Rig::local_gpu, 3),
                                           std::tuple(Rig::nccl_processes, 2)),
                         name_of_ranks);

TEST_P(EngineGpuTest, GradientsAreThoseOfTheWholeBatchAndTheDeviceStampsThem) {
  on_ranks({.layout = {100, 400}},
           [](Communicator& c, OddNet& net, Engine& engine, const Batch& batch) {
             const auto expected = whole_gradients(make_batch(13));
             const auto [begin, end] = even_share(c, 13);
             for (int step = 0; step < 4; ++step) {
               engine.zero_gradients();
               loss_of(net, batch, begin, end).backward();
               engine.finish();
               engine.finish();  // does nothing more
               expect_close(net, expected);
             }
             const auto& times = engine.device_times();
             ASSERT_EQ(times.ready.size(), engine.times().ready.size());
             EXPECT_TRUE(std::is_sorted(times.ready.begin(), times.ready.end()));
             EXPECT_GT(times.last_ready, 0);
             EXPECT_GE(times.waited, 0);
           });
}

// On a GPU gradients come into a bucket when it is sent, not one by one.
TEST_P(EngineGpuTest, PassesAccumulateAndEmptySharesAddUp) {
  for (const bool views : {true, false}) {
    on_ranks({.layout = {100, 400}, .gradient_as_bucket_view = views},
             [](Communicator& c, OddNet& net, Engine& engine, const Batch& batch) {
               const auto expected = whole_gradients(make_batch(13));
               const auto [begin, end] = even_share(c, 13);
               for (int step = 0; step < 3; ++step) {  // one part without an exchange
                 engine.zero_gradients();
                 {
                   const auto accumulating = engine.no_sync();
                   loss_of(net, batch, begin, begin + 1).backward();
                 }
                 loss_of(net, batch, begin + 1, end).backward();
                 engine.finish();
                 expect_close(net, expected);
               }
               engine.zero_gradients();
               for (int pass = 0; pass < 3; ++pass) {  // three with one
                 loss_of(net, batch, begin, end).backward();
                 engine.finish();
               }
               expect_close(net, expected, 3);
               engine.zero_gradients();  // the last rank has all samples
               if (c.rank() == c.size() - 1) loss_of(net, batch, 0, 13).backward();
               engine.finish();
               expect_close(net, expected);
             });
  }
}

TEST_P(EngineGpuTest, AParameterOfOneRankOnlyIsSummedAndOneOfNobodyIsZero) {
  on_ranks({.layout = {100, 400}, .find_unused_parameters = true},
           [](Communicator& c, OddNet& net, Engine& engine, const Batch& batch) {
             const auto branch = [&] {
               return net->branch->weight.grad().cpu().clone();
             };
             for (int step = 0; step < 3; ++step) {
               engine.zero_gradients();
               loss_of(net, batch, 0, 13).backward();
               engine.finish();
               const auto all = branch();
               EXPECT_TRUE(engine.globally_unused().empty());
               engine.zero_gradients();
               loss_of(net, batch, 0, 13, /*with_branch=*/c.rank() == 0).backward();
               engine.finish();
               EXPECT_TRUE(torch::allclose(branch() * c.size(), all, 1e-4, 1e-6));
               engine.zero_gradients();
               loss_of(net, batch, 0, 13, /*with_branch=*/false).backward();
               engine.finish();
               EXPECT_EQ(branch().abs().max().item<float>(), 0);
               EXPECT_EQ(engine.globally_unused().size(), 2U);  // weight and bias
             }
           });
}

TEST_P(EngineGpuTest, CompressedGradientsAreWithinTheStatedError) {
  on_ranks({.layout = {100, 400}, .compression = parallel::Compression::bf16},
           [](Communicator& c, OddNet& net, Engine& engine, const Batch& batch) {
             const auto expected = whole_gradients(make_batch(13));
             const auto [begin, end] = even_share(c, 13);
             engine.zero_gradients();
             loss_of(net, batch, begin, end).backward();
             engine.finish();
             const auto got = gradients_of(net);
             for (std::size_t i = 0; i < got.size(); ++i) {
               if (got[i].second.numel() == 0) continue;
               // Parts of a sum may cancel: the error is relative to the largest.
               const auto most = expected[i].second.abs().max().item<float>();
               EXPECT_LT((got[i].second - expected[i].second).abs().max().item<float>(),
                         0.05 * most)
                   << got[i].first;
             }
           });
}

TEST_P(EngineGpuTest, AnUnusedParameterIsNamedOneStepLater) {
  on_ranks({}, [](Communicator& c, OddNet& net, Engine& engine, const Batch& batch) {
    const auto [begin, end] = even_share(c, 13);
    const auto step = [&, b = begin, e = end](bool branch) {
      engine.zero_gradients();
      loss_of(net, batch, b, e, branch).backward();
      engine.finish();
    };
    step(true);
    step(true);
    const auto text = error_text(Fault::config, [&] {
      step(c.rank() != 0);
      step(true);
    });
    EXPECT_THAT(text, HasSubstr("'branch.weight' on "));
    step(true);
  });
}

TEST_P(EngineGpuTest, ASecondPassBeforeFinishIsRefusedWhereBackwardDoesNotWait) {
  const bool waits =
      std::get<0>(GetParam()) != Rig::local_gpu || std::get<1>(GetParam()) == 1;
  on_ranks({}, [&](Communicator&, OddNet& net, Engine& engine, const Batch& batch) {
    loss_of(net, batch, 0, 1).backward();
    const auto again = [&] { loss_of(net, batch, 0, 1).backward(); };
    if (waits) {
      again();
    } else {
      EXPECT_THAT(error_text(Fault::internal, again), HasSubstr("before finish()"));
    }
    engine.finish();
  });
}

// The only rank that exists computes, and what it has not used is all that is unused.
TEST(EngineModelled, AStepRunsAtManyRanksOfWhichOneExists) {
  const auto batch = make_batch(8);
  const auto expected = whole_gradients(batch);
  const auto network =
      comm::make_modelled({.ranks = 512, .occupy = [](std::chrono::nanoseconds) {}});
  const auto cpu = comm::make_local({torch::kCPU});
  auto net = make_net();
  Engine engine(*net, *network, *cpu[0], {.layout = {100, 400}});
  for (int step = 0; step < 3; ++step) {
    engine.zero_gradients();
    loss_of(net, batch, 0, 8).backward();
    expect_close(net, expected);
  }
  engine.zero_gradients();
  EXPECT_THAT(
      error_text(Fault::config, [&] { loss_of(net, batch, 0, 8, false).backward(); }),
      HasSubstr("'branch.bias'"));
}

// Remembers the buffer it gave out last.
class BufferWitness : public Communicator {
 public:
  explicit BufferWitness(Communicator& inner) : inner_(inner) {}
  int rank() const noexcept override { return inner_.rank(); }
  int size() const noexcept override { return inner_.size(); }
  std::string_view backend() const noexcept override { return inner_.backend(); }
  torch::Device device() const override { return inner_.device(); }
  Pending start(const comm::Call& call) override { return inner_.start(call); }
  void abort() noexcept override { inner_.abort(); }
  std::unique_ptr<Communicator> split(int color, int key) override {
    return inner_.split(color, key);
  }
  Tensor empty_buffer(std::int64_t num_elements, torch::Dtype dtype) override {
    last = Communicator::empty_buffer(num_elements, dtype);
    last.fill_(7);  // as if somebody had used it before
    return last;
  }

  Tensor last;

 private:
  Communicator& inner_;
};

TEST(EngineBuffers, GradientsLiveWhereTheBackendReducesThemFastest) {
  const auto batch = make_batch(8);
  with_communicators(Rig::local, 2, [&](Communicator& c) {
    const auto expected = whole_gradients(batch);
    BufferWitness witness(c);
    auto net = make_net();
    Engine engine(*net, witness, c, {});
    const auto [begin, end] = even_share(c, 8);
    for (int step = 0; step < 3; ++step) {  // of which the first lays out anew
      EXPECT_TRUE(engine.gradients(0).is_same(witness.last));
      engine.zero_gradients();
      loss_of(net, batch, begin, end).backward();
      expect_close(net, expected);
    }
    const auto& slots = engine.layout()[0].slots;
    for (const auto& slot : slots) {
      EXPECT_EQ(engine.gradients(0)[slot.counter()].item<float>(), 0);
    }
  });
}

TEST(EngineOrder, DeterministicSumsDoNotDependOnBucketsOrBackend) {
  const auto batch = make_batch(13);
  std::vector<Tensor> results;
  for (const auto rig : {Rig::local, Rig::gloo_threads}) {
    for (const std::int64_t bytes : {64L, 1L << 20}) {
      Tensor result;
      with_communicators(rig, 3, [&](Communicator& c) {
        auto net = make_net();
        Engine engine(*net, c, c, {.layout = {bytes, bytes}, .deterministic = true});
        const auto [begin, end] = even_share(c, 13);
        loss_of(net, batch, begin, end).backward();
        if (c.rank() != 0) return;
        std::vector<Tensor> flat;
        for (const auto& [name, grad] : gradients_of(net))
          flat.push_back(grad.reshape(-1));
        result = torch::cat(flat);
      });
      results.push_back(result);
    }
  }
  for (const auto& result : results) EXPECT_TRUE(torch::equal(result, results[0]));
}

TEST(EngineModel, BuffersAreRankZeros) {
  with_communicators(Rig::local, 3, [](Communicator& c) {
    torch::nn::BatchNorm1d norm(4);
    norm->running_mean.fill_(c.rank() + 1);
    Engine engine(*norm, c, c, {});
    EXPECT_TRUE(norm->running_mean.eq(1).all().item<bool>());
    norm->running_mean.fill_(c.rank() + 5);
    engine.broadcast_buffers();
    EXPECT_TRUE(norm->running_mean.eq(5).all().item<bool>());
  });
}

TEST(EngineModel, DtypesMayBeMixed) {
  const auto x = torch::ones({4, 3});
  with_communicators(Rig::local, 2, [&](Communicator& c) {
    torch::nn::Sequential net(torch::nn::Linear(3, 3), torch::nn::Linear(3, 2));
    net[1]->to(torch::kFloat64);
    Engine engine(*net, c, c, {});
    ASSERT_EQ(engine.num_groups(), 2U);
    auto& first = *net[0]->as<torch::nn::Linear>();
    auto& second = *net[1]->as<torch::nn::Linear>();
    for (int step = 0; step < 2; ++step) {
      engine.zero_gradients();
      second.forward(first.forward(x).to(torch::kFloat64)).sum().backward();
      EXPECT_TRUE(second.bias.grad().eq(8).all().item<bool>());
      EXPECT_EQ(first.weight.grad().scalar_type(), torch::kFloat32);
    }
  });
}

}  // namespace lockstep::test
