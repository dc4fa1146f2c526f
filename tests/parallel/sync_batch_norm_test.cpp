// BatchNorm over ranks is BatchNorm on their batches one behind the other.
#include <ATen/autocast_mode.h>

#include "tests/parallel/sync_batch_norm_rig.h"

namespace lockstep::test::norms {

using ::testing::HasSubstr;

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

}  // namespace lockstep::test::norms
