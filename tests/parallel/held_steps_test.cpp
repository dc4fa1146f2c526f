// The update in parts, as CUDA graphs hold it: here without one, on a CPU.
#include "lockstep/parallel/held_steps.h"

#include "lockstep/parallel/strategy.h"
#include "tests/comm/ranks.h"

namespace lockstep::test {
namespace {

// Parameters of two dtypes, so that there are two flat buffers.
struct HeldNet : torch::nn::Module {
  HeldNet() {
    auto generator = at::detail::createCPUGenerator(3);
    narrow = register_parameter("narrow", torch::empty({20}).normal_(0, 1, generator));
    wide = register_parameter(
        "wide", torch::empty({30}, torch::kFloat64).normal_(0, 1, generator));
    spare = register_parameter("spare", torch::ones({2}));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return (narrow.sum() * x + (wide * wide * x).sum() + spare.sum()).sum();
  }
  torch::Tensor narrow, wide, spare;
};

config::Config held_config() {
  config::Config config;
  config.parallel.strategy = config::Strategy::single;
  config.optim.clip_norm = 1.0;
  config.ema.enabled = true;
  return config;
}

TEST(HeldSteps, AnUpdateInPartsHasTheBitsOfAnUpdate) {
  HeldNet one, other;
  auto world = comm::join({}, {});
  const auto whole = parallel::make_strategy(held_config(), one, world);
  const auto parts = parallel::make_strategy(held_config(), other, world);
  auto& held = *parts->held();
  EXPECT_EQ(held.obstacle(), "the model is not on a GPU");
  const auto numbers = torch::zeros(
      {static_cast<std::int64_t>(held.numbers({}, 0).size())}, torch::kFloat64);
  const auto skipped = torch::zeros({}, torch::kFloat64);
  for (int i = 0; i < 8; ++i) {
    const auto x = i == 4 ? torch::tensor(INFINITY, torch::kFloat64)
                          : torch::tensor(0.1 * (i + 1), torch::kFloat64);
    const parallel::Update wanted{
        .lr = 0.1 / (1 + i), .loss_scale = 4, .skips_nonfinite = true};
    whole->begin_step();
    whole->backward(one.forward(x) * 4, /*last=*/true);
    whole->finish();
    const auto done = whole->update(wanted);

    held.launch_passes([&] { parts->backward(other.forward(x) * 4, /*last=*/true); },
                       1);
    const auto values = held.numbers(wanted, 0);
    std::copy(values.begin(), values.end(), numbers.mutable_data_ptr<double>());
    EXPECT_EQ(held.norm(wanted).item<double>(), done.norm.item<double>());
    const auto norm = held.launch_update(numbers, skipped);
    EXPECT_EQ(norm.item<double>(), done.norm.item<double>()) << i;
    EXPECT_EQ(skipped.item<double>() != 0, done.skipped) << i;
    EXPECT_EQ(done.skipped, i == 4);
    if (!done.skipped) held.count_update();
    const auto got = other.parameters(), want = one.parameters();
    for (std::size_t p = 0; p < want.size(); ++p) {
      EXPECT_TRUE(got[p].equal(want[p])) << "step " << i << ", parameter " << p;
    }
  }
  whole->average()->use(true);
  parts->average()->use(true);
  EXPECT_TRUE(other.wide.equal(one.wide));
}

TEST(HeldSteps, APassThatFailsLeavesNothingBehind) {
  HeldNet net;
  auto world = comm::join({}, {});
  const auto strategy = parallel::make_strategy(held_config(), net, world);
  const auto fails = [&] {
    strategy->backward(net.forward(torch::ones({}, torch::kFloat64)), /*last=*/true);
    throw std::runtime_error("no capture");
  };
  EXPECT_THROW(strategy->held()->launch_passes(fails, 1), std::runtime_error);
  strategy->begin_step();
  strategy->backward(net.forward(torch::ones({}, torch::kFloat64)), /*last=*/true);
  strategy->finish();
  EXPECT_TRUE(net.narrow.grad().equal(torch::ones({20})));
}

TEST(HeldSteps, AParameterThatIsNotUsedIsRefused) {
  HeldNet net;
  auto world = comm::join({}, {});
  const auto strategy = parallel::make_strategy(held_config(), net, world);
  const auto passes = [&] {
    strategy->backward(net.narrow.sum() + net.wide.sum(), /*last=*/true);
  };
  EXPECT_EQ(
      error_text(Fault::config, [&] { strategy->held()->launch_passes(passes, 1); }),
      "parameter 'spare' takes no part in the loss");
}

// A step in between that does not use all of them cuts the buffers anew.
TEST(HeldSteps, WhatLiesElsewhereIsTold) {
  HeldNet net;
  auto world = comm::join({}, {});
  const auto strategy = parallel::make_strategy(held_config(), net, world);
  auto& held = *strategy->held();
  const auto before = held.prepare_update();
  EXPECT_EQ(held.prepare_update(), before);
  strategy->begin_step();
  strategy->backward(net.narrow.sum() + net.wide.sum(), /*last=*/true);
  strategy->finish();
  strategy->update({.lr = 0.1});
  EXPECT_NE(held.prepare_update(), before);
  EXPECT_GT(held.numbers({}, 0).size(), 1U);
}

}  // namespace
}  // namespace lockstep::test
