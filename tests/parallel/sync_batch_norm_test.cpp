// BatchNorm over ranks is BatchNorm on their batches one behind the other.
#include "lockstep/parallel/sync_batch_norm.h"

#include <filesystem>
#include <numeric>
#include <thread>

#include <ATen/ThreadLocalState.h>
#include <ATen/autocast_mode.h>

#include "lockstep/comm/local.h"
#include "lockstep/parallel/engine.h"
#include "tests/comm/ranks.h"
#include "tests/parallel/counting.h"

namespace lockstep::test::norms {

using comm::Communicator;
using parallel::SyncBatchNorm;
using ::testing::HasSubstr;
using torch::Tensor;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNorm1dOptions;
using torch::nn::BatchNorm2d;
using torch::nn::BatchNorm2dOptions;
using torch::nn::BatchNorm3d;

namespace {

// Without a word to the driver, which does not survive a fork.
bool has_gpu() {
  return std::filesystem::exists("/dev/nvidiactl");
}

// How many samples each rank has.
using Shares = std::vector<std::int64_t>;

std::int64_t sum_of(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

Tensor share_of(const Communicator& c, const Tensor& whole, const Shares& shares) {
  const auto rank = static_cast<std::size_t>(c.rank());
  const auto begin =
      std::accumulate(shares.begin(), shares.begin() + c.rank(), std::int64_t{0});
  return whole.narrow(0, begin, shares[rank]);
}

void expect_same_bits(Communicator& c, const Tensor& tensor) {
  const auto all = torch::empty({c.size() * tensor.numel()}, tensor.options());
  c.all_gather(all, tensor.contiguous().view(-1)).wait();
  const auto rows = all.view({c.size(), -1});
  for (int r = 0; r < c.size(); ++r) EXPECT_TRUE(torch::equal(rows[r], rows[0]));
}

struct Tolerance {
  double relative = 1e-4, absolute = 1e-5;  // float32: sums in another order
};

void expect_close(const Tensor& got, const Tensor& expected, const Tolerance& within,
                  const char* what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_EQ(got.scalar_type(), expected.scalar_type()) << what;
  EXPECT_TRUE(torch::allclose(got, expected, within.relative, within.absolute))
      << what << "\n"
      << (got - expected).abs().max();
}

// Inputs whose mean is far from zero, with another variance in each sample: ranks have
// different statistics.
Tensor make_input(const Communicator& c, std::vector<std::int64_t> shape) {
  auto generator = at::detail::createCPUGenerator(3);
  auto x = torch::randn(shape, generator);
  std::vector<std::int64_t> by_sample(shape.size(), 1);
  by_sample[0] = shape[0];
  const auto n = torch::arange(shape[0], torch::kFloat32).view(by_sample);
  return (x * (1 + 0.3 * n) + 2 + 0.1 * n).to(c.device());
}

// A plain layer with the whole batch, and one over the ranks with a share each.
template <typename Norm>
struct Pair {
  Norm whole, share;
  Tensor whole_in, share_in, whole_out, share_out;

  template <typename Options>
  Pair(const Communicator& c, const Options& options) : whole(options), share(options) {
    whole->to(c.device());
    share->to(c.device());
    if (!whole->weight.defined()) return;
    const torch::NoGradGuard no_grad;
    for (auto& norm : {whole, share}) {
      norm->weight.copy_(torch::linspace(-1, 2, norm->weight.numel()));
      norm->bias.copy_(torch::linspace(1, -1, norm->weight.numel()));
    }
  }

  void pass(Communicator& c, const Tensor& x, const Shares& shares,
            const SyncBatchNorm& sync) {
    whole_in = x.detach().clone().requires_grad_();
    share_in = share_of(c, x, shares).detach().clone().requires_grad_();
    whole->zero_grad();
    share->zero_grad();
    whole_out = whole->forward(whole_in);
    const SyncBatchNorm::Scope scope(sync);
    share_out = share->forward(share_in);
    loss_of(whole_out).backward();
    loss_of(share_out).backward();
  }

  static Tensor loss_of(const Tensor& out) {
    const auto y = out.to(torch::kFloat32);
    return (y.pow(3) + y.sin()).sum() / 10;
  }

  void expect_equal(Communicator& c, const Shares& shares, const Tolerance& within) {
    expect_close(share_out, share_of(c, whole_out, shares), within, "output");
    expect_close(share_in.grad(), share_of(c, whole_in.grad(), shares), within,
                 "input gradient");
    if (whole->weight.defined()) {
      c.all_reduce(share->weight.grad()).wait();
      c.all_reduce(share->bias.grad()).wait();
      // A gradient is a sum over the batch, of terms that cancel.
      const auto n = static_cast<double>(sum_of(shares));
      const Tolerance sum{within.relative, n * within.absolute};
      expect_close(share->weight.grad(), whole->weight.grad(), sum, "weight");
      expect_close(share->bias.grad(), whole->bias.grad(), sum, "bias");
    }
    if (!whole->running_mean.defined()) return;
    expect_close(share->running_mean, whole->running_mean, within, "running mean");
    expect_close(share->running_var, whole->running_var, within, "running variance");
    EXPECT_TRUE(torch::equal(share->num_batches_tracked, whole->num_batches_tracked));
    expect_same_bits(c, share->running_mean);
    expect_same_bits(c, share->running_var);
  }
};

// The same number of samples everywhere, one each, unequal, none here and there.
std::vector<Shares> kinds_of_shares(int ranks) {
  std::vector<Shares> kinds{{4, 4}, {1, 1}, {1, 6}, {0, 5}, {5, 0}};
  if (ranks == 3) kinds = {{3, 3, 3}, {1, 1, 1}, {5, 1, 2}, {0, 4, 0}, {0, 0, 3}};
  return kinds;
}

template <typename Norm, typename Options>
void expect_like_whole(Communicator& c, const Options& options,
                       std::vector<std::int64_t> sample_shape,
                       const std::function<Tensor(const Tensor&)>& prepared,
                       const Tolerance& within = {}) {
  for (const auto& shares : kinds_of_shares(c.size())) {
    Pair<Norm> pair(c, options);
    const SyncBatchNorm sync(*pair.share, c);
    auto shape = sample_shape;
    shape.insert(shape.begin(), sum_of(shares));
    const auto x = prepared(make_input(c, shape));
    for (int step = 0; step < 2; ++step) {
      pair.pass(c, x, shares, sync);
      pair.expect_equal(c, shares, within);
    }
  }
}

Tensor as_it_is(const Tensor& x) {
  return x;
}

}  // namespace

class SyncBatchNormTest : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void SetUp() override {
    if (needs_gpu(std::get<0>(GetParam())) && !has_gpu()) GTEST_SKIP() << "no GPU";
  }
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

INSTANTIATE_TEST_SUITE_P(
    Ranks, SyncBatchNormTest,
    ::testing::Values(std::tuple(Rig::local, 2), std::tuple(Rig::local, 3),
                      std::tuple(Rig::gloo_processes, 2),
                      std::tuple(Rig::gloo_processes, 3),
                      std::tuple(Rig::shm_processes, 2),
                      std::tuple(Rig::shm_processes, 3),
                      std::tuple(Rig::nccl_processes, 2)),
    [](const ::testing::TestParamInfo<std::tuple<Rig, int>>& ranks) {
      return str(name_of(std::get<0>(ranks.param)), std::get<1>(ranks.param));
    });

TEST_P(SyncBatchNormTest, ImagesAreLikeTheWholeBatch) {
  on_ranks([](Communicator& c) {
    expect_like_whole<BatchNorm2d>(c, BatchNorm2dOptions(5), {5, 3, 4}, as_it_is);
  });
}

TEST_P(SyncBatchNormTest, VolumesAndSequencesAreLikeTheWholeBatch) {
  on_ranks([](Communicator& c) {
    expect_like_whole<BatchNorm3d>(c, torch::nn::BatchNorm3dOptions(3), {3, 2, 3, 2},
                                   as_it_is);
    expect_like_whole<BatchNorm1d>(c, BatchNorm1dOptions(4), {4, 6}, as_it_is);
  });
}

TEST_P(SyncBatchNormTest, RowsAreLikeTheWholeBatch) {
  on_ranks([](Communicator& c) {
    const Shares shares = c.size() == 2 ? Shares{7, 2} : Shares{0, 2, 6};
    Pair<BatchNorm1d> pair(c, BatchNorm1dOptions(6));
    const SyncBatchNorm sync(*pair.share, c);
    pair.pass(c, make_input(c, {sum_of(shares), 6}), shares, sync);
    pair.expect_equal(c, shares, {});
  });
}

TEST_P(SyncBatchNormTest, OneRowARankIsLikeTheWholeBatch) {
  on_ranks([](Communicator& c) {
    torch::nn::Module training;
    const SyncBatchNorm sync(training, c);
    const auto x = make_input(c, {c.size(), 4});
    const auto mean = torch::zeros({4}, x.options()), var = torch::ones_like(mean);
    const auto whole =
        torch::batch_norm(x, {}, {}, mean.clone(), var.clone(), true, 0.1, 1e-5, false);
    const SyncBatchNorm::Scope scope(sync);
    const auto mine = torch::batch_norm(x.narrow(0, c.rank(), 1), {}, {}, mean, var,
                                        true, 0.1, 1e-5, false);
    expect_close(mine, whole.narrow(0, c.rank(), 1), {}, "output");
  });
}

TEST_P(SyncBatchNormTest, OptionsAreHeeded) {
  on_ranks([](Communicator& c) {
    for (auto each :
         {BatchNorm2dOptions(4).affine(false), BatchNorm2dOptions(4).momentum({}),
          BatchNorm2dOptions(4).momentum(0.7).eps(0.1),
          BatchNorm2dOptions(4).track_running_stats(false)}) {
      expect_like_whole<BatchNorm2d>(c, each, {4, 2, 3}, as_it_is);
    }
  });
}

TEST_P(SyncBatchNormTest, ChannelsLastStaysChannelsLast) {
  on_ranks([](Communicator& c) {
    const auto last = [](const Tensor& x) {
      return x.contiguous(torch::MemoryFormat::ChannelsLast);
    };
    expect_like_whole<BatchNorm2d>(c, BatchNorm2dOptions(5), {5, 3, 4}, last);

    Pair<BatchNorm2d> pair(c, BatchNorm2dOptions(5));
    const SyncBatchNorm sync(*pair.share, c);
    const Shares shares(static_cast<std::size_t>(c.size()), 2);
    pair.pass(c, last(make_input(c, {2 * c.size(), 5, 3, 4})), shares, sync);
    for (const auto& tensor : {pair.share_out, pair.share_in.grad()}) {
      EXPECT_TRUE(tensor.is_contiguous(torch::MemoryFormat::ChannelsLast));
    }
  });
}

TEST_P(SyncBatchNormTest, InputsWithHolesAreLikeTheWholeBatch) {
  on_ranks([](Communicator& c) {
    expect_like_whole<BatchNorm2d>(
        c, BatchNorm2dOptions(3), {3, 8, 4},
        [](const Tensor& x) { return x.slice(2, 0, 8, 2).transpose(2, 3); });
  });
}

TEST_P(SyncBatchNormTest, HalfPrecisionHasFloatStatistics) {
  on_ranks([](Communicator& c) {
    for (const auto dtype : {torch::kBFloat16, torch::kFloat16}) {
      // The output is rounded to 8 bits, its gradient once more, and a gradient is
      // three times the square of an output of up to 6.
      const Tolerance within{3e-2, 2e-1};
      expect_like_whole<BatchNorm2d>(
          c, BatchNorm2dOptions(5), {5, 3, 4},
          [dtype](const Tensor& x) { return x.to(dtype); }, within);
      Pair<BatchNorm2d> pair(c, BatchNorm2dOptions(5));
      const SyncBatchNorm sync(*pair.share, c);
      const Shares shares(static_cast<std::size_t>(c.size()), 2);
      const auto x = make_input(c, {2 * c.size(), 5, 3, 4}).to(dtype);
      pair.pass(c, x, shares, sync);
      EXPECT_EQ(pair.share_out.scalar_type(), dtype);
      // Computed from the rounded inputs, but not in their precision.
      const auto mean = 0.1 * x.to(torch::kFloat64).mean({0, 2, 3});
      expect_close(pair.share->running_mean, mean.to(torch::kFloat32), {1e-5, 1e-6},
                   "running mean");
    }
  });
}

TEST_P(SyncBatchNormTest, AHalfPrecisionLayerAndADoubleOne) {
  on_ranks([](Communicator& c) {
    for (const auto dtype : {torch::kBFloat16, torch::kFloat64}) {
      Pair<BatchNorm2d> pair(c, BatchNorm2dOptions(5));
      pair.whole->to(dtype);
      pair.share->to(dtype);
      const SyncBatchNorm sync(*pair.share, c);
      const Shares shares(static_cast<std::size_t>(c.size()), 2);
      const auto x = make_input(c, {2 * c.size(), 5, 3, 4}).to(dtype);
      pair.pass(c, x, shares, sync);
      // bfloat16: see above, and the weight's gradient is one, too.
      const Tolerance within =
          dtype == torch::kFloat64 ? Tolerance{1e-6, 1e-6} : Tolerance{3e-2, 2e-1};
      pair.expect_equal(c, shares, within);
    }
  });
}

TEST_P(SyncBatchNormTest, UnderAutocastTheDtypeIsThatOfBatchNorm) {
  on_ranks([](Communicator& c) {
    Pair<BatchNorm2d> pair(c, BatchNorm2dOptions(5));
    const SyncBatchNorm sync(*pair.share, c);
    const auto device = c.device().type();
    const auto x = make_input(c, {2 * c.size(), 5, 3, 4}).to(torch::kBFloat16);
    const Shares shares(static_cast<std::size_t>(c.size()), 2);
    at::autocast::set_autocast_enabled(device, true);
    pair.pass(c, x, shares, sync);
    at::autocast::set_autocast_enabled(device, false);
    pair.expect_equal(c, shares, {3e-2, 2e-1});  // as above
  });
}

TEST_P(SyncBatchNormTest, FrozenWeightsAndInputsWithoutGradient) {
  on_ranks([](Communicator& c) {
    const Shares shares(static_cast<std::size_t>(c.size()), 3);
    const auto x = make_input(c, {3 * c.size(), 4, 2, 2});
    Pair<BatchNorm2d> pair(c, BatchNorm2dOptions(4));
    const SyncBatchNorm sync(*pair.share, c);
    pair.share->weight.requires_grad_(false);
    const auto whole_in = x.clone().requires_grad_();
    const auto share_in = share_of(c, x, shares).clone().requires_grad_();
    pair.loss_of(pair.whole->forward(whole_in)).backward();
    const SyncBatchNorm::Scope scope(sync);
    pair.loss_of(pair.share->forward(share_in)).backward();
    EXPECT_FALSE(pair.share->weight.grad().defined());
    expect_close(share_in.grad(), share_of(c, whole_in.grad(), shares), {}, "input");

    pair.share->weight.requires_grad_(true);
    pair.share->bias.mutable_grad() = Tensor();
    pair.loss_of(pair.share->forward(share_in.detach())).backward();
    c.all_reduce(pair.share->weight.grad()).wait();
    expect_close(pair.share->weight.grad(), pair.whole->weight.grad(), {1e-4, 1e-3},
                 "weight");  // a sum over the batch, of terms that cancel
  });
}

TEST_P(SyncBatchNormTest, TrainingModeWithoutGradientsUpdatesTheStatistics) {
  on_ranks([](Communicator& c) {
    const torch::NoGradGuard no_grad;
    const auto x = make_input(c, {2 * c.size(), 4, 2, 2});
    Pair<BatchNorm2d> pair(c, BatchNorm2dOptions(4));
    const SyncBatchNorm sync(*pair.share, c);
    pair.whole->forward(x);
    const SyncBatchNorm::Scope scope(sync);
    const auto out = pair.share->forward(x.narrow(0, 2 * c.rank(), 2));
    EXPECT_FALSE(out.requires_grad());
    expect_close(pair.share->running_var, pair.whole->running_var, {}, "variance");
  });
}

TEST_P(SyncBatchNormTest, OneValueAChannelInAllIsRefusedOnEveryRank) {
  on_ranks([](Communicator& c) {
    torch::nn::Module training;
    const SyncBatchNorm sync(training, c);
    const auto x = torch::ones({c.rank() == 1 ? 1 : 0, 4}, c.device());
    const SyncBatchNorm::Scope scope(sync);
    const auto text = error_text(Fault::config, [&] {
      torch::batch_norm(x, {}, {}, {}, {}, true, 0.1, 1e-5, false);
    });
    EXPECT_THAT(text, HasSubstr("fewer than 2 values"));
  });
}

TEST_P(SyncBatchNormTest, SecondDerivativesAreRefused) {
  on_ranks([](Communicator& c) {
    BatchNorm2d norm(3);
    norm->to(c.device());
    const SyncBatchNorm sync(*norm, c);
    const SyncBatchNorm::Scope scope(sync);
    const auto x = make_input(c, {2, 3, 2, 2}).requires_grad_();
    const auto loss = norm->forward(x).pow(2).sum();
    EXPECT_THAT(error_text(Fault::config, [&] { loss.backward({}, true, true); }),
                HasSubstr("second derivative"));
  });
}

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
  parallel::Engine engine(*net, c, cpu, {});
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

namespace {}  // namespace

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
