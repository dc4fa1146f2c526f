#include <ATen/ops/_upsample_bilinear2d_aa.h>

#include "lockstep/data/transformed.h"
#include "lockstep/data/transforms/crop.h"
#include "lockstep/data/transforms/erase.h"
#include "lockstep/data/transforms/mix.h"
#include "lockstep/data/transforms/resize.h"
#include "tests/data/support.h"

namespace lockstep::data {
namespace {

template <typename T>
Image<T> view_of(const torch::Tensor& t) {
  return {t.data_ptr<T>(), t.size(0), t.size(1), t.size(2)};
}

template <typename T>
Image<const T> const_view_of(const torch::Tensor& t) {
  return {t.data_ptr<T>(), t.size(0), t.size(1), t.size(2)};
}

torch::Tensor some_bytes(const std::vector<std::int64_t>& shape) {
  torch::manual_seed(3);
  return torch::randint(256, shape, torch::kUInt8);
}

TEST(Crop, EqualsPaddingAndCuttingByLibTorch) {
  const auto in = some_bytes({3, 7, 9});
  const auto padded = torch::constant_pad_nd(in, {4, 4, 4, 4});
  auto out = torch::empty_like(in);
  for (const int down : {-4, -1, 0, 3, 4}) {
    for (const int right : {-4, 0, 2, 4}) {
      crop(const_view_of<std::uint8_t>(in), view_of<std::uint8_t>(out), {down, right});
      const auto expected = padded.narrow(1, 4 + down, 7).narrow(2, 4 + right, 9);
      EXPECT_TRUE(out.equal(expected)) << down << " " << right;
    }
  }
  crop(const_view_of<std::uint8_t>(in), view_of<std::uint8_t>(out), {100, -100});
  EXPECT_EQ(out.sum().item<int>(), 0);  // all of it is outside
}

TEST(Flip, EqualsLibTorchsForBytesAndFloats) {
  const auto bytes = some_bytes({3, 4, 5});
  auto flipped = bytes.clone();
  flip(view_of<std::uint8_t>(flipped));
  EXPECT_TRUE(flipped.equal(bytes.flip(2)));
  auto floats = bytes.to(torch::kFloat32);
  flip(view_of<float>(floats));
  EXPECT_TRUE(floats.equal(bytes.flip(2).to(torch::kFloat32)));
}

// LibTorch's float result is the oracle; ours is it, rounded to a byte.
TEST(Resize, EqualsLibTorchsAntialiasedBilinear) {
  Resizer resizer;
  const auto in = some_bytes({3, 31, 45});
  for (const auto& size : std::vector<std::vector<std::int64_t>>{
           {16, 16}, {31, 45}, {64, 50}, {5, 90}, {1, 1}, {30, 44}}) {
    const auto expected =
        at::_upsample_bilinear2d_aa(in.to(torch::kFloat64).unsqueeze(0), size, false)
            .squeeze(0);
    auto bytes = torch::empty({3, size[0], size[1]}, torch::kUInt8);
    resizer.resize(const_view_of<std::uint8_t>(in), view_of<std::uint8_t>(bytes));
    // Half a step of rounding, and the last digits of float32 sums.
    EXPECT_LE((bytes.to(torch::kFloat64) - expected).abs().max().item<double>(), 0.501)
        << size;
    const auto floats_in = in.to(torch::kFloat32);
    auto floats = torch::empty({3, size[0], size[1]});
    resizer.resize(const_view_of<float>(floats_in), view_of<float>(floats));
    EXPECT_TRUE(floats.to(torch::kFloat64).allclose(expected, 1e-5, 1e-3)) << size;
  }
}

TEST(Resize, PixelsOfThreeValuesBecomePlanes) {
  const auto planes = some_bytes({3, 20, 30});
  const auto pixels = planes.permute({1, 2, 0}).contiguous();
  auto expected = torch::empty({3, 12, 13}, torch::kUInt8);
  auto out = torch::empty_like(expected);
  Resizer resizer;
  resizer.resize(const_view_of<std::uint8_t>(planes), view_of<std::uint8_t>(expected));
  resizer.resize(Pixels<std::uint8_t>{pixels.data_ptr<std::uint8_t>(), 20, 30, 3, 90},
                 view_of<std::uint8_t>(out));
  EXPECT_TRUE(out.equal(expected));
}

TEST(Erase, FillsTheBoxAndNothingElse) {
  const auto in = some_bytes({2, 8, 8});
  auto out = in.clone();
  const std::vector<float> values{10, 999};  // a byte ends at 255
  erase(view_of<std::uint8_t>(out), {2, 3, 4, 5}, values);
  auto expected = in.clone();
  expected.select(0, 0).narrow(0, 2, 4).narrow(1, 3, 5).fill_(10);
  expected.select(0, 1).narrow(0, 2, 4).narrow(1, 3, 5).fill_(255);
  EXPECT_TRUE(out.equal(expected));
}

TEST(Erase, BoxesLieInsideTheImage) {
  Random random(5);
  bool reached_the_border = false;
  for (int i = 0; i < 2000; ++i) {
    const auto cut = cutout_box(random, {32, 20}, 8);
    EXPECT_GE(std::min(cut.top, cut.left), 0);
    EXPECT_TRUE(cut.top + cut.height <= 32 && cut.left + cut.width <= 20);
    EXPECT_TRUE(cut.height >= 1 && cut.height <= 8 && cut.width >= 1);
    reached_the_border |= cut.height < 8;
    const auto box = erasing_box(random, {32, 20});
    if (!box) continue;
    EXPECT_TRUE(box->top >= 0 && box->top + box->height <= 32);
    EXPECT_TRUE(box->left >= 0 && box->left + box->width <= 20);
    // 2 to 33 % of 640 pixels, and what rounding the sides to whole pixels adds.
    EXPECT_GE(box->height * box->width, 6);
    EXPECT_LE(box->height * box->width, 250);
  }
  EXPECT_TRUE(reached_the_border);
}

TEST(Mix, AveragesBothOfAPair) {
  const auto a = some_bytes({1, 4, 4}), b = some_bytes({1, 4, 4}).flip(1).contiguous();
  auto x = a.clone(), y = b.clone();
  mix(view_of<std::uint8_t>(x), view_of<std::uint8_t>(y), {.own = 0.75F});
  const auto expected = 0.75 * a.to(torch::kFloat64) + 0.25 * b.to(torch::kFloat64);
  EXPECT_LE((x.to(torch::kFloat64) - expected).abs().max().item<double>(), 0.5);
  const auto other = 0.25 * a.to(torch::kFloat64) + 0.75 * b.to(torch::kFloat64);
  EXPECT_LE((y.to(torch::kFloat64) - other).abs().max().item<double>(), 0.5);
}

TEST(Mix, CutmixExchangesABoxOfTheShareThatItSays) {
  Random random(9);
  double smallest = 1;
  for (int i = 0; i < 300; ++i) {
    const auto blend = draw_blend(random, {.cutmix = 1}, {16, 24});
    ASSERT_TRUE(blend.cut);
    const auto a = torch::zeros({2, 16, 24}, torch::kUInt8);
    const auto b = torch::ones({2, 16, 24}, torch::kUInt8);
    mix(view_of<std::uint8_t>(a), view_of<std::uint8_t>(b), blend);
    const auto share = a.to(torch::kFloat64).mean().item<double>();
    EXPECT_NEAR(1 - blend.own, share, 1e-6);
    EXPECT_NEAR(b.to(torch::kFloat64).mean().item<double>(), 1 - share, 1e-6);
    EXPECT_GE(blend.own, 0.5);
    smallest = std::min<double>(smallest, blend.own);
  }
  EXPECT_LT(smallest, 0.6);  // boxes come large, too
}

// Mean 1/2 and variance 1 / (4 (2 alpha + 1)) are what make it Beta(alpha, alpha).
TEST(Random, BetaHasItsMeanAndVariance) {
  for (const double alpha : {0.2, 1.0, 4.0}) {
    Random random(1);
    double sum = 0, squares = 0;
    constexpr int kDraws = 40'000;
    for (int i = 0; i < kDraws; ++i) {
      const double x = random.beta(alpha);
      ASSERT_TRUE(x >= 0 && x <= 1);
      sum += x;
      squares += x * x;
    }
    const double mean = sum / kDraws;
    EXPECT_NEAR(mean, 0.5, 0.01);  // four standard errors of 40,000 draws
    EXPECT_NEAR(squares / kDraws - mean * mean, 1 / (4 * (2 * alpha + 1)), 0.004);
  }
}

TEST(Transformed, WithoutAnyWishItIsTheDataSetItself) {
  auto pictures = std::make_unique<test::Pictures>(test::noise_pictures(3, {1, 4, 4}));
  const auto* before = pictures.get();
  EXPECT_EQ(transformed(std::move(pictures), {}).get(), before);
}

TEST(Transformed, EachWishChangesWhatItSays) {
  const auto make = [](const Transforms& transforms) {
    return transformed(
        std::make_unique<test::Pictures>(test::noise_pictures(64, {3, 16, 16})),
        transforms);
  };
  const auto plain = test::noise_pictures(64, {3, 16, 16});
  EXPECT_EQ(make({.resize = 24})->spec().shape, (std::vector<std::int64_t>{3, 24, 24}));
  int flipped = 0, shifted = 0, hidden = 0, erased = 0;
  const auto flips = make({.flip = 0.5}), crops = make({.crop_padding = 2}),
             cutouts = make({.cutout = 6}), erases = make({.erase = 0.5});
  for (std::int64_t i = 0; i < 64; ++i) {
    const Visit visit{.index = i, .seed = 1, .draw = i};
    const auto x = test::sample_of(plain, visit);
    const auto f = test::sample_of(*flips, visit);
    EXPECT_TRUE(f.equal(x) || f.equal(x.flip(2)));
    flipped += f.equal(x) ? 0 : 1;
    shifted += test::sample_of(*crops, visit).equal(x) ? 0 : 1;
    hidden += test::sample_of(*cutouts, visit).equal(x) ? 0 : 1;
    erased += test::sample_of(*erases, visit).equal(x) ? 0 : 1;
  }
  EXPECT_TRUE(flipped > 16 && flipped < 48) << flipped;
  EXPECT_GT(shifted, 50);  // one of 25 shifts is none
  EXPECT_EQ(hidden, 64);
  EXPECT_TRUE(erased > 16 && erased < 48) << erased;
}

TEST(Transformed, WhatIsHiddenIsZeroToTheModel) {
  const auto hides = transformed(
      std::make_unique<test::Pictures>(test::noise_pictures(1, {3, 8, 8})),
      {.cutout = 16, .mean = {0.2, 0.4, 0.6}, .deviation = {0.1, 0.2, 0.3}});
  const auto x = test::sample_of(*hides, {.seed = 4});
  for (std::int64_t c = 0; c < 3; ++c) {
    const auto& channel = hides->spec().channels[static_cast<std::size_t>(c)];
    const auto pixel = x[c].flatten().mode();  // most of it is hidden
    const float seen =
        channel.scale * static_cast<float>(std::get<0>(pixel).item<int>()) +
        channel.shift;
    EXPECT_NEAR(seen, 0, 0.5 * channel.scale + 1e-6);  // half a byte
  }
}

TEST(Transformed, MeanAndDeviationAreOfPixelsFromZeroToOne) {
  const auto one =
      transformed(std::make_unique<test::Pictures>(test::noise_pictures(1, {3, 2, 2})),
                  {.mean = {0.5}, .deviation = {0.25}});
  EXPECT_NEAR(255 * one->spec().scale + one->spec().shift, 2, 1e-6);
  EXPECT_TRUE(one->spec().channels.empty());
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 transformed(std::make_unique<test::Pictures>(
                                                 test::noise_pictures(1, {3, 2, 2})),
                                             {.mean = {1, 1}, .deviation = {1, 1}});
                               }),
              testing::HasSubstr("data.mean: 2 values, but the samples have 3"));
}

TEST(Transformed, SamplesThatAreNoImagesAreRefusedByTheKnobsName) {
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 transformed(std::make_unique<test::Pictures>(
                                                 test::noise_pictures(1, {7})),
                                             {.flip = 0.5});
                               }),
              testing::HasSubstr("augment.flip: the samples have shape [7]"));
}

// The rule of augmentation: seed, epoch and sample, nothing else.
TEST(Transformed, DoesNotDependOnWorkersOrRanks) {
  const auto data = transformed(
      std::make_unique<test::Pictures>(test::noise_pictures(53, {3, 12, 12})),
      {.resize = 10, .crop_padding = 2, .flip = 0.5, .cutout = 3, .erase = 0.5});
  const LoaderOptions options{.batch = 8, .seed = 5, .epochs = 2};
  const auto alone = test::everything(*data, options);
  auto many = options;
  many.workers = 4;
  many.prefetch = 5;
  EXPECT_TRUE(test::everything(*data, many).inputs.equal(alone.inputs));
  for (const int ranks : {2, 3, 5}) {
    EXPECT_TRUE(
        test::everything_over(*data, options, ranks).inputs.equal(alone.inputs));
  }
}

TEST(Transformed, DiffersBetweenEpochsAndSeeds) {
  const auto data = transformed(
      std::make_unique<test::Pictures>(test::noise_pictures(8, {1, 12, 12})),
      {.crop_padding = 4, .flip = 0.5});
  const Visit visit{.index = 3, .seed = 1, .epoch = 0, .draw = 3};
  auto other_epoch = visit, other_seed = visit;
  other_epoch.epoch = 1;
  other_seed.seed = 2;
  const auto x = test::sample_of(*data, visit);
  EXPECT_TRUE(test::sample_of(*data, visit).equal(x));
  EXPECT_FALSE(test::sample_of(*data, other_epoch).equal(x));
  EXPECT_FALSE(test::sample_of(*data, other_seed).equal(x));
}

}  // namespace
}  // namespace lockstep::data
