#include "lockstep/optim/clip.h"

#include <ATen/Parallel.h>

#include "tests/support/support.h"

namespace lockstep::optim {
namespace {

double sum_of_squares(const torch::Tensor& flat) {
  return flat.to(torch::kFloat64).square().sum().item<double>();
}

TEST(SquaredNorm, IsTheSumOfSquaresForEverySizeAndDtype) {
  torch::manual_seed(2);
  for (const std::int64_t count : {1, 31, 32, 33, 4095, 4096, 4097, 100'003}) {
    for (const auto dtype :
         {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16}) {
      const auto flat = torch::randn({count}).to(dtype);
      const auto expected = sum_of_squares(flat);
      // Doubles in another order.
      EXPECT_NEAR(SquaredNorm(flat).of(flat).item<double>(), expected, 1e-13 * expected)
          << count << " of " << dtype;
    }
  }
}

TEST(SquaredNorm, ThreeLevelsOfBlocksAddUp) {
  const auto flat = torch::ones({4096 * 4096 + 5});
  EXPECT_EQ(SquaredNorm(flat).of(flat).item<double>(), 4096 * 4096 + 5);
}

TEST(SquaredNorm, OfNothingIsZero) {
  const auto flat = torch::empty({0});
  EXPECT_EQ(SquaredNorm(flat).of(flat).item<double>(), 0);
}

TEST(SquaredNorm, DoesNotDependOnTheNumberOfThreads) {
  torch::manual_seed(2);
  const auto flat = torch::randn({500'003}) * torch::logspace(-6, 6, 500'003);
  const auto with = [&](int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    const auto sum = SquaredNorm(flat).of(flat).item<double>();
    at::set_num_threads(before);
    return sum;
  };
  const double one = with(1);
  EXPECT_EQ(with(2), one);
  EXPECT_EQ(with(5), one);
}

TEST(SquaredNorm, IsFiniteExactlyIfEveryElementIs) {
  auto flat = torch::full({10'000}, 3e38F);  // its square is no float
  SquaredNorm norm(flat);
  EXPECT_TRUE(std::isfinite(norm.of(flat).item<double>()));
  flat[9'999] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(std::isfinite(norm.of(flat).item<double>()));
  flat[9'999] = std::nanf("");
  EXPECT_TRUE(std::isnan(norm.of(flat).item<double>()));
}

TEST(NormClip, TheFactorBringsTheNormDownAndNeverUp) {
  const auto squared = torch::tensor(16.0, torch::kFloat64);
  NormClip clip(1, torch::kCPU);
  clip.compute(squared, 1);
  EXPECT_DOUBLE_EQ(clip.norm().item<double>(), 4);
  EXPECT_DOUBLE_EQ(clip.factor().item<double>(), 1 / (4 + 1e-6));  // as in PyTorch
  clip.compute(squared, 1.0 / 16);
  EXPECT_DOUBLE_EQ(clip.norm().item<double>(), 0.25) << "of the scaled gradients";
  EXPECT_DOUBLE_EQ(clip.factor().item<double>(), 1);
}

TEST(NormClip, WithoutALimitOnlyTheNormIsComputed) {
  NormClip clip(0, torch::kCPU);
  clip.compute(torch::tensor(1e6, torch::kFloat64), 1);
  EXPECT_DOUBLE_EQ(clip.norm().item<double>(), 1000);
  EXPECT_DOUBLE_EQ(clip.factor().item<double>(), 1);
}

TEST(NormClip, WhatIsNoNumberIsNotHidden) {
  NormClip clip(1, torch::kCPU);
  clip.compute(torch::tensor(std::nan(""), torch::kFloat64), 1);
  EXPECT_TRUE(std::isnan(clip.factor().item<double>()));
}

TEST(NormClipGpu, NormAndFactorEqualTheCpusToTheBit) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(2);
  for (const std::int64_t count : {1, 33, 4097, 17'000'003}) {
    for (const auto dtype :
         {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16}) {
      const auto flat = torch::randn({count}).to(dtype);
      const auto on_gpu = flat.cuda();
      NormClip here(0.5, torch::kCPU), there(0.5, on_gpu.device());
      SquaredNorm squared(flat), squared_there(on_gpu);
      here.compute(squared.of(flat), 0.25);
      there.compute(squared_there.of(on_gpu), 0.25);
      EXPECT_EQ(here.norm().item<double>(), there.norm().item<double>()) << count;
      EXPECT_EQ(here.factor().item<double>(), there.factor().item<double>()) << count;
    }
  }
}

}  // namespace
}  // namespace lockstep::optim
