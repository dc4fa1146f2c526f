// Mixup and cutmix as the loader does them.
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

constexpr Mixing kBoth{.mixup = 0.4, .cutmix = 1};

TEST(Mixing, DoesNotDependOnWorkersRanksOrTheBatch) {
  const auto data = test::noise_pictures(53, {3, 6, 6});
  const LoaderOptions options{.batch = 8, .seed = 5, .epochs = 2, .mixing = kBoth};
  const auto alone = test::everything(data, options);
  EXPECT_EQ(alone.targets.sizes(), (std::vector<std::int64_t>{106, 10}));
  auto many = options;
  many.workers = 3;
  EXPECT_TRUE(test::everything(data, many).inputs.equal(alone.inputs));
  for (const int ranks : {2, 3, 7}) {  // shares begin and end inside of pairs
    const auto shared = test::everything_over(data, options, ranks);
    EXPECT_TRUE(shared.inputs.equal(alone.inputs)) << ranks;
    EXPECT_TRUE(shared.targets.equal(alone.targets)) << ranks;
  }
  auto odd = options;
  odd.batch = 7;
  EXPECT_TRUE(test::everything(data, odd).inputs.equal(alone.inputs));
}

// With one value a sample, what is mixed can be read off: x = own * a + (1 - own) * b.
TEST(Mixing, TargetsSayTheSharesOfWhatWasMixed) {
  const test::Pictures data(
      10, {1, 4, 4}, [](std::int64_t index, std::int64_t) { return int(index) * 20; });
  const auto all = test::everything(
      data,
      {.batch = 4, .shuffle = false, .seed = 2, .epochs = 1, .mixing = {.mixup = 1}});
  const auto values = torch::arange(10).to(torch::kFloat32) * 20;
  const auto expected = all.targets.matmul(values);
  const auto seen = all.inputs.to(torch::kFloat32).mean({1, 2, 3});
  EXPECT_LE((seen - expected).abs().max().item<double>(), 0.51);  // bytes are rounded
  EXPECT_TRUE(all.targets.sum(1).allclose(torch::ones({10})));
  // Its own class is the largest part of each, and some are really mixed.
  EXPECT_TRUE(all.targets.argmax(1).equal(torch::arange(10)));
  EXPECT_LT(std::get<0>(all.targets.max(1)).min().item<double>(), 0.9);
}

TEST(Mixing, TheLastOfAnOddEpochStaysAsItIs) {
  const auto data = test::noise_pictures(3, {1, 4, 4});
  const auto all = test::everything(
      data, {.batch = 3, .shuffle = false, .epochs = 1, .mixing = {.mixup = 1}});
  EXPECT_TRUE(all.inputs[2].equal(test::sample_of(data, {.index = 2})));
  EXPECT_TRUE(all.targets[2].equal(torch::eye(10)[2]));
}

TEST(Mixing, WhatCanNotBeMixedIsRefused) {
  const auto data = test::noise_pictures(3, {5});
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] { Loader loader(data, {.mixing = {.mixup = 1}}); }),
              testing::HasSubstr("augment.mixup: samples of shape [5]"));
}

}  // namespace
}  // namespace lockstep::data
