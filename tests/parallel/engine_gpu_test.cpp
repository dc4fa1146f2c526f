// The engine with gradients on a GPU.
#include <filesystem>

#include "tests/parallel/odd_net.h"

namespace lockstep::test {

using ::testing::HasSubstr;

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
                 Engine engine(*net, {c, cpu}, options);
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
             const auto& times = engine.times();
             ASSERT_EQ(times.ready.size(), engine.host_times().ready.size());
             EXPECT_TRUE(std::is_sorted(times.ready.begin(), times.ready.end()));
             EXPECT_GT(times.last_ready, 0);
             EXPECT_GE(times.waited, 0);
           });
}

TEST_P(EngineGpuTest, AShardIsSummedAndChangedValuesReachEveryRank) {
  on_ranks({.stage = parallel::kStages[1], .layout = {100, 400}},
           [](Communicator& c, OddNet& net, Engine& engine, const Batch& batch) {
             const auto expected = whole_gradients(make_batch(13));
             const auto [begin, end] = even_share(c, 13);
             for (int step = 0; step < 3; ++step) {
               engine.zero_gradients();
               loss_of(net, batch, begin, end).backward();
               engine.finish();
               engine.gather_gradients();
               expect_close(net, expected);
             }
             const torch::NoGradGuard no_grad;
             const auto before = net->first->weight.clone();
             for (std::size_t i = 0; i < engine.owned().size(); ++i) {
               const auto& shard = engine.owned()[i];
               shard.of(engine.values(shard.group)).add_(1);
               engine.updated(i);
             }
             engine.wait_for_values();
             EXPECT_TRUE(torch::equal(net->first->weight, before + 1));
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

}  // namespace lockstep::test
