// What a recipe's knobs make of its data set.
#include <set>

#include "lockstep/data/open.h"
#include "lockstep/data/subset.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

using testing::HasSubstr;

config::Config synthetic(std::int64_t samples = 200) {
  config::Config config;
  config.data.name = "synthetic";
  config.data.shape = {3, 8, 8};
  config.data.synthetic_samples = samples;
  config.data.workers = 1;
  config.data.prefetch = 2;
  config.data.pin_memory = false;
  config.batch.global = 16;
  return config;
}

TEST(HoldOut, TakesTheShareAndNoSampleTwice) {
  const auto make = [] {
    return hold_out(
        std::make_unique<test::Pictures>(100, std::vector<std::int64_t>{1, 1, 1},
                                         [](auto index, auto) { return int(index); }),
        0.2);
  };
  const auto parts = make();
  EXPECT_EQ(parts.train->size(), 80);
  EXPECT_EQ(parts.eval->size(), 20);
  std::set<int> seen;
  for (const auto* part : {parts.train.get(), parts.eval.get()}) {
    for (std::int64_t i = 0; i < part->size(); ++i) {
      seen.insert(test::sample_of(*part, {.index = i}).item<int>());
    }
  }
  EXPECT_EQ(seen.size(), 100u);
  const auto again = make();
  for (std::int64_t i = 0; i < 20; ++i) {
    EXPECT_EQ(test::sample_of(*again.eval, {.index = i}).item<int>(),
              test::sample_of(*parts.eval, {.index = i}).item<int>());
  }
}

TEST(HoldOut, APartWithoutSamplesIsRefusedWithTheArithmetic) {
  const auto text = [](double share) {
    return test::error_text(Fault::config, [&] {
      hold_out(std::make_unique<test::Pictures>(test::noise_pictures(100, {1, 1, 1})),
               share);
    });
  };
  EXPECT_THAT(
      text(0.001),
      HasSubstr("data.split: 0.001 of 100 samples is 0, which leaves evaluation"));
  EXPECT_THAT(text(0.999), HasSubstr("is 100, which leaves training"));
}

TEST(Parts, SplitReplacesTheDataSetsOwnTestSamples) {
  auto config = synthetic();
  EXPECT_EQ(open_splits(config).eval->size(), 20);
  config.data.split = 0.25;
  config.data.eval_samples = 30;
  const auto parts = open_splits(config);
  EXPECT_EQ(parts.train->size(), 150);
  EXPECT_EQ(parts.eval->size(), 30);
}

TEST(Parts, AugmentationIsForTrainingOnly) {
  auto config = synthetic();
  config.data.split = 0.5;
  config.data.resize = 12;
  config.augment.cutout = 6;
  config.augment.flip = 0.5;
  config.augment.crop_padding = 2;
  config.augment.erase = 1;
  const auto parts = open_splits(config);
  config.augment = {};
  const auto plain = open_splits(config);
  EXPECT_EQ(parts.train->spec().shape, (std::vector<std::int64_t>{3, 12, 12}));
  for (std::int64_t i = 0; i < 10; ++i) {
    const Visit visit{.index = i, .draw = i};
    EXPECT_FALSE(test::sample_of(*parts.train, visit)
                     .equal(test::sample_of(*plain.train, visit)));
    EXPECT_TRUE(
        test::sample_of(*parts.eval, visit).equal(test::sample_of(*plain.eval, visit)));
  }
  EXPECT_FALSE(train_options(config, {}).mixing.any());
  config.augment.mixup = 0.2;
  EXPECT_TRUE(train_options(config, {}).mixing.any());
  EXPECT_FALSE(eval_options(config, {}).mixing.any());
}

TEST(Parts, KnobsReachTheLoader) {
  auto config = synthetic();
  config.data.drop_last = true;
  config.data.weighted_sampling = true;
  config.data.on_bad_sample = config::OnBadSample::skip;
  config.train.limit_train_batches = 7;
  config.train.limit_eval_batches = 2;
  config.run.seed = 9;
  const auto train = train_options(config, {1, 3});
  EXPECT_TRUE(train.drop_last && train.weighted && train.skip_bad && train.shuffle);
  EXPECT_EQ(train.limit_batches, 7);
  EXPECT_EQ(train.seed, 9u);
  EXPECT_EQ(train.rank, 1);
  EXPECT_EQ(train.ranks, 3);
  EXPECT_EQ(train.batch, 16);
  const auto eval = eval_options(config, {});
  EXPECT_FALSE(eval.shuffle || eval.weighted || eval.drop_last);
  EXPECT_EQ(eval.limit_batches, 2);
  EXPECT_EQ(eval.epochs, 1);
  EXPECT_TRUE(eval.skip_bad);
}

TEST(Loader, DropLastLeavesTheShortBatchOut) {
  const auto data = test::noise_pictures(25, {1, 2, 2});
  Loader loader(data, {.batch = 10, .epochs = 2, .drop_last = true});
  std::vector<bool> ends;
  while (const auto* batch = loader.next()) {
    EXPECT_EQ(batch->size, 10);
    ends.push_back(batch->ends_epoch);
  }
  EXPECT_EQ(ends, (std::vector<bool>{false, true, false, true}));
  EXPECT_EQ(loader.samples_per_epoch(), 20);
  EXPECT_THAT(
      test::error_text(Fault::config,
                       [&] { Loader none(data, {.batch = 26, .drop_last = true}); }),
      HasSubstr("a batch has 26 samples, the data set 25"));
}

TEST(Loader, ALimitEndsTheEpochAndTheNextBeginsAnew) {
  const auto data = test::noise_pictures(50, {1, 2, 2});
  const auto two =
      test::everything(data, {.batch = 10, .seed = 1, .epochs = 2, .limit_batches = 2});
  EXPECT_EQ(two.inputs.size(0), 40);
  const auto whole = test::everything(data, {.batch = 10, .seed = 1, .epochs = 2});
  EXPECT_TRUE(two.inputs.narrow(0, 0, 20).equal(whole.inputs.narrow(0, 0, 20)));
  EXPECT_TRUE(two.inputs.narrow(0, 20, 20).equal(whole.inputs.narrow(0, 50, 20)));
}

TEST(Loader, AnEmptyDataSetIsAnError) {
  const auto data = test::noise_pictures(0, {1, 2, 2});
  EXPECT_THAT(test::error_text(Fault::config, [&] { Loader loader(data, {}); }),
              HasSubstr("the data set is empty"));
}

}  // namespace
}  // namespace lockstep::data
