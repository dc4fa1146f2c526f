#include "lockstep/precision/policy.h"

#include <array>

#include "tests/support/support.h"

namespace lockstep::precision {
namespace {

using config::Precision;

torch::Dtype product_dtype() {
  return torch::mm(torch::ones({2, 2}), torch::ones({2, 2})).scalar_type();
}

TEST(Autocast, Bf16ProductsInsideTheScopeOnly) {
  {
    const AutocastScope scope({Precision::bf16, torch::kCPU});
    EXPECT_EQ(product_dtype(), torch::kBFloat16);
  }
  EXPECT_EQ(product_dtype(), torch::kFloat32);
}

TEST(Autocast, Fp16ProductsInsideTheScopeOnly) {
  {
    const AutocastScope scope({Precision::fp16, torch::kCPU});
    EXPECT_EQ(product_dtype(), torch::kFloat16);
  }
  EXPECT_EQ(product_dtype(), torch::kFloat32);
}

TEST(Autocast, Fp32LeavesThingsAlone) {
  const AutocastScope scope({Precision::fp32, torch::kCPU});
  EXPECT_EQ(product_dtype(), torch::kFloat32);
}

TEST(Autocast, ScopesNest) {
  const AutocastScope outer({Precision::bf16, torch::kCPU});
  {
    const AutocastScope inner({Precision::bf16, torch::kCPU});
    EXPECT_EQ(product_dtype(), torch::kBFloat16);
  }
  EXPECT_EQ(product_dtype(), torch::kBFloat16);
}

// A copy of the weight from before the update must not be used after it.
TEST(Autocast, AnUpdateBetweenScopesIsSeen) {
  auto weight = torch::ones({2, 2}, torch::requires_grad());
  const auto product = [&] {
    const AutocastScope scope({Precision::bf16, torch::kCPU});
    return torch::mm(torch::ones({2, 2}), weight)[0][0].item<float>();
  };
  EXPECT_EQ(product(), 2);
  {
    const torch::NoGradGuard no_grad;
    weight.fill_(3);
  }
  EXPECT_EQ(product(), 6);
}

TEST(Autocast, GradientsOfParametersStayFp32) {
  auto weight = torch::ones({2, 2}, torch::requires_grad());
  torch::Tensor loss;
  {
    const AutocastScope scope({Precision::bf16, torch::kCPU});
    loss = torch::mm(torch::ones({2, 2}), weight).sum();
  }
  loss.backward();
  EXPECT_EQ(weight.grad().scalar_type(), torch::kFloat32);
}

TEST(Policy, Tf32OnACpuIsRefused) {
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 apply({Precision::tf32, torch::kCPU});
                               }),
              testing::HasSubstr("precision.mode"));
}

TEST(Policy, OnlyFp64AndHalfParamsChangeTheDtypeOfParameters) {
  for (const auto mode :
       {Precision::fp32, Precision::tf32, Precision::bf16, Precision::fp16}) {
    EXPECT_EQ((Policy{mode, torch::kCPU}.dtype()), torch::kFloat32);
  }
  EXPECT_EQ((Policy{Precision::fp64, torch::kCPU}.dtype()), torch::kFloat64);
  EXPECT_EQ((Policy{Precision::bf16_params, torch::kCPU}.dtype()), torch::kBFloat16);
  EXPECT_EQ((Policy{Precision::fp16_params, torch::kCPU}.dtype()), torch::kFloat16);
}

TEST(Policy, TheLossIsNeverBelowFp32) {
  for (const auto mode : {Precision::bf16, Precision::fp16, Precision::bf16_params,
                          Precision::fp16_params}) {
    EXPECT_EQ((Policy{mode, torch::kCPU}.loss_dtype()), torch::kFloat32);
  }
  EXPECT_EQ((Policy{Precision::fp64, torch::kCPU}.loss_dtype()), torch::kFloat64);
}

torch::nn::Sequential small_net() {
  return torch::nn::Sequential(torch::nn::Conv2d(3, 4, 3), torch::nn::BatchNorm2d(4),
                               torch::nn::ReLU(), torch::nn::Flatten(),
                               torch::nn::Linear(4 * 6 * 6, 2));
}

const std::array kHalfParams{Precision::bf16_params, Precision::fp16_params};

TEST(Convert, ParametersOfHalfTheSizeLeaveBatchNormsInFp32) {
  for (const auto mode : kHalfParams) {
    auto net = small_net();
    const Policy policy{mode, torch::kCPU};
    convert(*net, policy);
    for (const auto& item : net->named_parameters()) {
      const bool norm = item.key().starts_with("1.");
      EXPECT_EQ(item.value().scalar_type(), norm ? torch::kFloat32 : policy.dtype())
          << item.key();
    }
    const auto buffers = net->named_buffers();
    EXPECT_EQ(buffers["1.running_mean"].scalar_type(), torch::kFloat32);
    EXPECT_EQ(buffers["1.num_batches_tracked"].scalar_type(), torch::kInt64);
  }
}

TEST(Convert, ANetworkOfHalfTheSizeTrainsOnTheCpu) {
  for (const auto mode : kHalfParams) {
    auto net = small_net();
    const Policy policy{mode, torch::kCPU};
    convert(*net, policy);
    const auto out = net->forward(torch::randn({2, 3, 8, 8}).to(policy.dtype()));
    EXPECT_EQ(out.scalar_type(), policy.dtype());
    out.to(policy.loss_dtype()).square().sum().backward();
    for (const auto& item : net->named_parameters()) {
      EXPECT_EQ(item.value().grad().scalar_type(), item.value().scalar_type());
      EXPECT_TRUE(item.value().grad().isfinite().all().item<bool>()) << item.key();
    }
  }
}

TEST(Convert, Fp64ChangesEverythingThatIsANumberWithAPoint) {
  auto net = small_net();
  convert(*net, {Precision::fp64, torch::kCPU});
  for (const auto& p : net->parameters()) EXPECT_EQ(p.scalar_type(), torch::kFloat64);
  EXPECT_EQ(net->named_buffers()["1.running_mean"].scalar_type(), torch::kFloat64);
}

TEST(PolicyGpu, Tf32ChangesProductsAndFp32DoesNot) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  torch::manual_seed(1);
  const auto a = torch::randn({256, 256}, torch::kCUDA);
  const auto exact = torch::mm(a.to(torch::kFloat64), a.to(torch::kFloat64));
  const auto error = [&](Precision mode) {
    apply({mode, torch::Device(torch::kCUDA, 0)});
    return (torch::mm(a, a).to(torch::kFloat64) - exact).abs().max().item<double>();
  };
  EXPECT_LT(error(Precision::fp32), 1e-3);  // 256 products, 24 bits
  EXPECT_GT(error(Precision::tf32), 1e-3);  // 11 bits
  EXPECT_LT(error(Precision::fp32), 1e-3);
}

}  // namespace
}  // namespace lockstep::precision
