#include "lockstep/optim/ema.h"

#include "tests/support/support.h"

namespace lockstep::optim {
namespace {

TEST(Ema, FollowsTheWeightsByTheDecay) {
  auto weights = torch::zeros({4});
  Ema ema({.enabled = true, .decay = 0.75, .warmup = false}, weights);
  weights.fill_(1);
  double expected = 0;
  for (int i = 0; i < 5; ++i) {
    ema.update(weights);
    expected = 0.75 * expected + 0.25;
    EXPECT_FLOAT_EQ(ema.average()[0].item<float>(), static_cast<float>(expected));
  }
}

TEST(Ema, ForgetsFasterDuringTheWarmUp) {
  auto weights = torch::zeros({4});
  Ema ema({.enabled = true, .decay = 0.5, .warmup = true}, weights);
  weights.fill_(1);
  ema.update(weights);  // the decay is 1/10
  EXPECT_FLOAT_EQ(ema.average()[0].item<float>(), 0.9F);
  ema.update(weights);  // 2/11
  EXPECT_FLOAT_EQ(ema.average()[0].item<float>(), 1 - 0.1F * 2 / 11);
  for (int i = 2; i < 8; ++i) ema.update(weights);
  weights.fill_(3);
  const float before = ema.average()[0].item<float>();
  ema.update(weights);  // 9/18 is the decay itself
  EXPECT_FLOAT_EQ(ema.average()[0].item<float>(), (before + 3) / 2);
}

TEST(Ema, EveryLeavesStepsOut) {
  auto weights = torch::zeros({4});
  Ema ema({.enabled = true, .decay = 0.5, .warmup = false, .every = 3}, weights);
  weights.fill_(1);
  const float expected[] = {0, 0, 0.5F, 0.5F, 0.5F, 0.75F};
  for (const float value : expected) {
    ema.update(weights);
    EXPECT_EQ(ema.average()[0].item<float>(), value);
  }
}

TEST(Ema, AnUpdateInPartsHasTheBitsOfAnUpdate) {
  torch::manual_seed(1);
  const auto start = torch::randn({100});
  const config::EmaConfig config{
      .enabled = true, .decay = 0.9, .warmup = true, .every = 2};
  Ema whole(config, start), parts(config, start);
  for (int i = 0; i < 9; ++i) {
    const auto weights = torch::randn({100});
    const double later = parts.rest(1);
    parts.launch(weights, torch::tensor(parts.rest(0), torch::kFloat64));
    parts.count_step();
    EXPECT_EQ(parts.rest(0), later);
    whole.update(weights);
    EXPECT_TRUE(parts.average().equal(whole.average())) << i;
  }
  for (std::size_t i = 0; i < whole.state().size(); ++i) {
    EXPECT_TRUE(parts.state()[i].second.equal(whole.state()[i].second));
  }
}

TEST(Ema, SwappingOutPutsTheWeightsBackToTheBit) {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    auto values = torch::randn({100}).to(dtype);
    Ema ema({.enabled = true, .decay = 0.9}, values);
    const auto later = torch::randn({100});
    ema.update(later);
    const auto before = values.clone();
    const void* place = values.data_ptr();
    ema.swap_in(values);
    EXPECT_TRUE(values.equal(ema.average().to(dtype)));
    EXPECT_FALSE(values.equal(before));
    ema.swap_out(values);
    EXPECT_TRUE(values.equal(before));
    EXPECT_EQ(values.data_ptr(), place) << "parameters are views of it";
  }
}

TEST(Ema, AStepWhileTheAverageIsInPlaceIsOurBug) {
  auto values = torch::ones({4});
  Ema ema({.enabled = true}, values);
  ema.swap_in(values);
  test::error_text(Fault::internal, [&] { ema.update(values); });
  test::error_text(Fault::internal, [&] { ema.swap_in(values); });
  ema.swap_out(values);
  test::error_text(Fault::internal, [&] { ema.swap_out(values); });
}

TEST(Ema, KeepsFp32OfBf16Weights) {
  auto weights = torch::ones({4}, torch::kBFloat16);
  Ema ema({.enabled = true, .decay = 0.999, .warmup = false}, weights);
  weights.fill_(2);
  ema.update(weights);
  EXPECT_FLOAT_EQ(ema.average()[0].item<float>(), 1.001F);  // no bf16
}

TEST(Ema, ACopyLoadedFromTheStateContinuesToTheBit) {
  const config::EmaConfig config{.enabled = true, .decay = 0.9, .every = 2};
  torch::manual_seed(1);
  const auto weights = torch::randn({100});
  Ema first(config, weights);
  for (int i = 0; i < 3; ++i) first.update(torch::randn({100}));
  NamedTensors saved;
  for (const auto& [name, tensor] : first.state()) {
    saved.emplace_back(name, tensor.clone());
  }
  Ema second(config, torch::zeros({100}));
  second.load(saved);
  for (int i = 0; i < 3; ++i) {
    const auto next = torch::randn({100});
    first.update(next);
    second.update(next);
  }
  EXPECT_TRUE(first.average().equal(second.average()));
}

}  // namespace
}  // namespace lockstep::optim
