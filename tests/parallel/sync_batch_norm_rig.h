#pragma once

// BatchNorm over ranks beside BatchNorm on their batches one behind the other.
#include <filesystem>
#include <numeric>

#include "lockstep/parallel/sync_batch_norm.h"
#include "tests/comm/ranks.h"

namespace lockstep::test::norms {

using comm::Communicator;
using parallel::SyncBatchNorm;
using torch::Tensor;
using torch::nn::BatchNorm1d;
using torch::nn::BatchNorm1dOptions;
using torch::nn::BatchNorm2d;
using torch::nn::BatchNorm2dOptions;
using torch::nn::BatchNorm3d;

// Without a word to the driver, which does not survive a fork.
inline bool has_gpu() {
  return std::filesystem::exists("/dev/nvidiactl");
}

// How many samples each rank has.
using Shares = std::vector<std::int64_t>;

inline std::int64_t sum_of(const Shares& shares) {
  return std::accumulate(shares.begin(), shares.end(), std::int64_t{0});
}

inline Tensor share_of(const Communicator& c, const Tensor& whole,
                       const Shares& shares) {
  const auto rank = static_cast<std::size_t>(c.rank());
  const auto begin =
      std::accumulate(shares.begin(), shares.begin() + c.rank(), std::int64_t{0});
  return whole.narrow(0, begin, shares[rank]);
}

inline void expect_same_bits(Communicator& c, const Tensor& tensor) {
  const auto all = torch::empty({c.size() * tensor.numel()}, tensor.options());
  c.all_gather(all, tensor.contiguous().view(-1)).wait();
  const auto rows = all.view({c.size(), -1});
  for (int r = 0; r < c.size(); ++r) EXPECT_TRUE(torch::equal(rows[r], rows[0]));
}

struct Tolerance {
  double relative = 1e-4, absolute = 1e-5;  // float32: sums in another order
};

inline void expect_close(const Tensor& got, const Tensor& expected,
                         const Tolerance& within, const char* what) {
  ASSERT_EQ(got.sizes(), expected.sizes()) << what;
  EXPECT_EQ(got.scalar_type(), expected.scalar_type()) << what;
  EXPECT_TRUE(torch::allclose(got, expected, within.relative, within.absolute))
      << what << "\n"
      << (got - expected).abs().max();
}

// Inputs whose mean is far from zero, with another variance in each sample: ranks have
// different statistics.
inline Tensor make_input(const Communicator& c, std::vector<std::int64_t> shape) {
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
inline std::vector<Shares> kinds_of_shares(int ranks) {
  std::vector<Shares> kinds{{4, 4}, {1, 1}, {1, 6}, {0, 5}, {5, 0}};
  if (ranks == 3) kinds = {{3, 3, 3}, {1, 1, 1}, {5, 1, 2}, {0, 4, 0}, {0, 0, 3}};
  return kinds;
}

template <typename Norm, typename Options>
inline void expect_like_whole(Communicator& c, const Options& options,
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

inline Tensor as_it_is(const Tensor& x) {
  return x;
}

class SyncBatchNormTest : public ::testing::TestWithParam<std::tuple<Rig, int>> {
 protected:
  void SetUp() override {
    if (needs_gpu(std::get<0>(GetParam())) && !has_gpu()) GTEST_SKIP() << "no GPU";
  }
  void on_ranks(const std::function<void(Communicator&)>& body) const {
    with_communicators(std::get<0>(GetParam()), std::get<1>(GetParam()), body);
  }
};

}  // namespace lockstep::test::norms
