#include "lockstep/kernels/dropout.h"

#include <torch/torch.h>

#include "tests/support/support.h"

namespace lockstep::kernels {
namespace {

using torch::Tensor;

Tensor dropped(const Tensor& in, const Drawn& drawn) {
  auto out = torch::full_like(in, 7);
  dropout(out, in, drawn);
  return out;
}

TEST(Dropout, KeepsTheShareThatItShouldAndScalesIt) {
  const auto ones = torch::ones({100, 10'000});
  for (const double p : {0.1, 0.5, 0.9}) {
    const auto out = dropped(ones, {.key = 1, .num_samples = 100, .probability = p});
    EXPECT_NEAR(out.ne(0).to(torch::kFloat64).mean().item<double>(), 1 - p, 0.002);
    EXPECT_FLOAT_EQ(out.max().item<float>(), static_cast<float>(1 / (1 - p)));
    // Neither samples nor places in them are alike.
    const auto kept = out.ne(0).to(torch::kFloat64);
    EXPECT_NEAR(kept.mean(0).var().item<double>(), p * (1 - p) / 100, 3e-4);
    EXPECT_NEAR(kept.mean(1).var().item<double>(), p * (1 - p) / 10'000, 2e-5);
    const auto next = kept.narrow(1, 1, 9'999) * kept.narrow(1, 0, 9'999);
    EXPECT_NEAR(next.mean().item<double>(), (1 - p) * (1 - p), 0.003);
  }
}

TEST(Dropout, DependsOnTheSampleAndNotOnWhoIsBesideIt) {
  const auto x = torch::randn({12, 3'001});
  const Drawn all{.key = 9, .first_sample = 40, .num_samples = 12, .probability = 0.3};
  const auto whole = dropped(x, all);
  for (const std::int64_t begin : {0, 5, 11}) {
    auto some = all;
    some.first_sample += begin;
    some.num_samples = 12 - begin;
    EXPECT_TRUE(torch::equal(dropped(x.narrow(0, begin, 12 - begin), some),
                             whole.narrow(0, begin, 12 - begin)));
  }
  auto other = all;
  other.key = 10;
  EXPECT_FALSE(torch::equal(dropped(x, other), whole));
}

TEST(Dropout, DropsTheSameInEveryFormatOfNumbers) {
  const Drawn drawn{.key = 3, .num_samples = 4, .probability = 0.5};
  const auto x = torch::rand({4, 1'000}) + 0.5;
  const auto kept = dropped(x, drawn).ne(0);
  for (const auto type : {torch::kFloat64, torch::kBFloat16, torch::kHalf}) {
    const auto out = dropped(x.to(type), drawn);
    EXPECT_TRUE(torch::equal(out.ne(0), kept)) << type;
    EXPECT_TRUE(torch::equal(out, torch::where(kept, x.to(type) * 2, 0))) << type;
  }
}

TEST(Dropout, IsTheSameOnAGpu) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const auto type :
       {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kHalf}) {
    const auto x = torch::randn({5, 77'777}).to(type);
    const Drawn drawn{
        .key = 1ULL << 63, .first_sample = 9, .num_samples = 5, .probability = 0.25};
    const auto there = dropped(x.cuda(), drawn).cpu();
    EXPECT_TRUE(torch::equal(there, dropped(x, drawn))) << type;
  }
}

}  // namespace
}  // namespace lockstep::kernels
