// Models with BatchNorm over ranks, and what they cost.
#include <thread>

#include <ATen/ThreadLocalState.h>

#include "lockstep/comm/local.h"
#include "lockstep/parallel/engine.h"
#include "tests/parallel/counting.h"
#include "tests/parallel/sync_batch_norm_rig.h"

namespace lockstep::test::norms {

using ::testing::HasSubstr;

namespace {

// A model with members of its own, as people write them.
struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl() {
    conv = register_module("conv", torch::nn::Conv2d(2, 4, 3));
    norm = register_module("norm", BatchNorm2d(4));
    inner = register_module(
        "inner", torch::nn::Sequential(torch::nn::Conv2d(4, 3, 2), BatchNorm2d(3),
                                       torch::nn::ReLU()));
    last = register_module("last", torch::nn::Linear(3, 2));
  }
  Tensor forward(const Tensor& x) {
    const auto h = torch::relu(norm->forward(conv->forward(x)));
    return last->forward(inner->forward(h).mean({2, 3}));
  }
  torch::nn::Conv2d conv{nullptr};
  BatchNorm2d norm{nullptr};
  torch::nn::Sequential inner{nullptr};
  torch::nn::Linear last{nullptr};
};
TORCH_MODULE(ConvNet);

void copy_parameters(const ConvNet& from, const ConvNet& to) {
  const torch::NoGradGuard no_grad;
  const auto source = from->parameters(), target = to->parameters();
  for (std::size_t i = 0; i < source.size(); ++i) target[i].copy_(source[i]);
}

// One step of both; `whole` takes its own gradients.
void expect_same_step(ConvNet& whole, ConvNet& net, parallel::Engine& engine) {
  const torch::NoGradGuard no_grad;
  const auto wholes = whole->named_parameters();
  for (const auto& item : net->named_parameters()) {
    auto expected = wholes[item.key()];
    expect_close(item.value().grad(), expected.grad(), {}, item.key().c_str());
    expected.sub_(expected.grad(), 0.1);
  }
  engine.values(0).sub_(engine.gradients(0), 0.1);
}

void train_beside_the_whole(Communicator& c, Communicator& cpu) {
  // Convolutions of one batch and of its parts would differ in the fourth digit.
  if (c.device().is_cuda()) at::globalContext().setAllowTF32CuDNN(false);
  // The first rank has no samples in the second step.
  const std::vector<Shares> steps =
      c.size() == 2 ? std::vector<Shares>{{3, 5}, {0, 8}, {4, 4}}
                    : std::vector<Shares>{{3, 1, 4}, {0, 6, 2}, {2, 3, 3}};
  ConvNet net, whole;
  net->to(c.device());
  whole->to(c.device());
  parallel::Engine engine(*net, {c, cpu}, {});
  copy_parameters(net, whole);
  const SyncBatchNorm sync(*net, c);
  const auto x = make_input(c, {8, 2, 6, 6});
  for (const auto& shares : steps) {
    whole->zero_grad();
    whole->forward(x).pow(2).sum().div(8).backward();
    engine.zero_gradients();
    {
      const SyncBatchNorm::Scope scope(sync);
      net->forward(share_of(c, x, shares)).pow(2).sum().div(8).backward();
    }
    expect_same_step(whole, net, engine);
  }
  for (auto& item : net->named_buffers()) {
    expect_same_bits(c, item.value());
    expect_close(item.value(), whole->named_buffers()[item.key()], {},
                 item.key().c_str());
  }
}

}  // namespace

TEST_P(SyncBatchNormTest, AModelTrainsAsWithTheWholeBatch) {
  with_pairs(std::get<0>(GetParam()), std::get<1>(GetParam()), train_beside_the_whole);
}

TEST(SyncBatchNormCalls, OneCollectiveForwardAndOneBackwardAndNoneInEval) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    const auto count = std::make_shared<int>(0);
    CountingCommunicator counting(c, count);
    const auto x = make_input(c, {4, 3, 2, 2}).requires_grad_();
    for (const bool track : {true, false}) {
      BatchNorm2d norm(BatchNorm2dOptions(3).track_running_stats(track));
      const SyncBatchNorm sync(*norm, counting);
      const SyncBatchNorm::Scope scope(sync);
      *count = 0;
      const auto out = norm->forward(x);
      EXPECT_EQ(*count, 1);
      out.pow(2).sum().backward();
      EXPECT_EQ(*count, 2);
      norm->forward(x.detach()).pow(2).sum().backward();
      EXPECT_EQ(*count, 3) << "no input gradient is needed";
      norm->eval();
      norm->forward(x).pow(2).sum().backward();
      EXPECT_EQ(*count, 3);
    }
  });
}

TEST(SyncBatchNormCalls, InstanceNormAndLayersOutsideOfTheScopeStayAlone) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    const auto count = std::make_shared<int>(0);
    CountingCommunicator counting(c, count);
    const auto x = make_input(c, {4, 3, 2, 2});
    BatchNorm2d norm(3);
    torch::nn::InstanceNorm2d instance(
        torch::nn::InstanceNorm2dOptions(3).affine(true).track_running_stats(true));
    const SyncBatchNorm sync(*norm, counting);
    *count = 0;
    const auto expected = instance->forward(x);
    norm->forward(x);
    {
      const SyncBatchNorm::Scope scope(sync);
      EXPECT_TRUE(torch::equal(instance->forward(x), expected));
      EXPECT_EQ(*count, 0);
      norm->forward(x);
      EXPECT_EQ(*count, 1);
    }
    norm->forward(x);
    EXPECT_EQ(*count, 1);
  });
}

// A layer that is computed again in a backward pass may be so on another thread.
TEST(SyncBatchNormCalls, AScopeReachesTheThreadsOfAutograd) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    const auto count = std::make_shared<int>(0);
    CountingCommunicator counting(c, count);
    BatchNorm2d norm(3);
    const SyncBatchNorm sync(*norm, counting);
    *count = 0;
    std::optional<SyncBatchNorm::Scope> scope(std::in_place, sync);
    const at::ThreadLocalState carried;  // what autograd does
    scope.reset();
    std::thread([&] {
      const auto x = make_input(c, {4, 3, 2, 2});
      norm->forward(x);
      EXPECT_EQ(*count, 0);
      const at::ThreadLocalStateGuard guard(carried);
      norm->forward(x);
      EXPECT_EQ(*count, 1);
    }).join();
  });
}

TEST(SyncBatchNormCalls, ASingleRankHasPlainBatchNorm) {
  with_communicators(Rig::local, 1, [](Communicator& c) {
    Pair<BatchNorm2d> pair(c, BatchNorm2dOptions(3));
    const SyncBatchNorm sync(*pair.share, c);
    pair.pass(c, make_input(c, {4, 3, 2, 2}), {4}, sync);
    EXPECT_TRUE(torch::equal(pair.share_out, pair.whole_out));
    EXPECT_TRUE(torch::equal(pair.share_in.grad(), pair.whole_in.grad()));
  });
}

// Far from zero E[x^2] - E[x]^2 has no digits left.
TEST(SyncBatchNormPrecision, AMeanFarFromZeroLeavesTheVarianceRight) {
  with_communicators(Rig::local, 2, [](Communicator& c) {
    BatchNorm1d norm(BatchNorm1dOptions(2).momentum(1));
    const SyncBatchNorm sync(*norm, c);
    const SyncBatchNorm::Scope scope(sync);
    auto x = torch::zeros({50, 2}) + 10'000;
    x.narrow(0, 0, 25).add_(1);  // the variance is 1/4, of 100 values on both ranks
    norm->forward(x);
    EXPECT_TRUE(
        torch::allclose(norm->running_var, torch::full({2}, 0.25 * 100 / 99), 1e-5, 0));
  });
}

TEST(SyncBatchNormModel, ABatchNormIsFoundAtAnyDepth) {
  EXPECT_TRUE(parallel::has_batch_norm(*ConvNet()));
  EXPECT_TRUE(parallel::has_batch_norm(*BatchNorm3d(2)));
  EXPECT_TRUE(parallel::has_batch_norm(
      *torch::nn::Sequential(torch::nn::Sequential(BatchNorm1d(3)))));
  EXPECT_FALSE(parallel::has_batch_norm(
      *torch::nn::Sequential(torch::nn::Linear(2, 3), torch::nn::InstanceNorm1d(3))));
}

TEST(SyncBatchNormModel, ThreadsThatShareAGpuAreRefused) {
  if (!has_gpu()) GTEST_SKIP() << "no GPU";
  with_communicators(Rig::local_gpu, 2, [](Communicator& c) {
    BatchNorm2d norm(3);
    EXPECT_THAT(error_text(Fault::config, [&] { const SyncBatchNorm sync(*norm, c); }),
                HasSubstr("ranks 0 and 1 are threads that share the GPU 0"));
  });
}

}  // namespace lockstep::test::norms
