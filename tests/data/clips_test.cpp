// Clips, (T, C, H, W), as a model sees them: channels lie along the second axis.
#include <array>

#include "lockstep/data/stage.h"
#include "tests/support/support.h"

namespace lockstep::data {
namespace {

constexpr std::int64_t kClips = 5;

// Scales and shifts by which whole numbers are exact in float32.
constexpr std::array<Affine, 3> kOfChannels = {Affine{0.5F, 1}, Affine{0.25F, -1},
                                               Affine{0.125F, 3}};

SampleSpec spec_of_clips(torch::Dtype dtype) {
  SampleSpec spec{.shape = {2, 3, 4, 4}, .dtype = dtype, .num_classes = 4};
  spec.channels = {kOfChannels.begin(), kOfChannels.end()};
  spec.axis = 1;
  return spec;
}

// Every element by itself: what is stored, scaled and shifted as its channel is.
torch::Tensor seen_by_formula(const torch::Tensor& stored) {
  auto seen = stored.to(torch::kFloat32);
  auto at = seen.accessor<float, 5>();
  for (std::int64_t clip = 0; clip < at.size(0); ++clip) {
    for (std::int64_t frame = 0; frame < at.size(1); ++frame) {
      for (std::int64_t channel = 0; channel < at.size(2); ++channel) {
        const auto affine = kOfChannels[static_cast<std::size_t>(channel)];
        for (std::int64_t i = 0; i < 16; ++i) {
          auto& x = at[clip][frame][channel][i / 4][i % 4];
          x = affine.scale * x + affine.shift;
        }
      }
    }
  }
  return seen;
}

class Clips : public ::testing::TestWithParam<torch::Dtype> {};

INSTANTIATE_TEST_SUITE_P(Types, Clips,
                         ::testing::Values(torch::kUInt8, torch::kFloat32),
                         [](const auto& type) {
                           return type.param == torch::kUInt8 ? "Bytes" : "Floats";
                         });

TEST_P(Clips, AreNormalisedByChannelInEveryFrame) {
  const auto spec = spec_of_clips(GetParam());
  auto generator = at::detail::createCPUGenerator(3);
  const auto stored =
      torch::randint(256, {kClips, 2, 3, 4, 4}, generator, torch::kInt64)
          .to(GetParam());
  const Batch batch{.inputs = stored, .targets = torch::zeros({kClips}, torch::kInt64)};
  // Models of images want channels last, which clips do not have.
  for (const auto format :
       {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
    BatchStage stage({.spec = spec, .format = format});
    stage.reserve(kClips);
    const auto all = stage.stage(batch, 0, kClips).at("input");
    EXPECT_EQ(all.scalar_type(), torch::kFloat32);
    EXPECT_TRUE(all.equal(seen_by_formula(stored)));
    // A later micro-batch, in the same buffers.
    const auto some = stage.stage(batch, 2, 2).at("input");
    EXPECT_TRUE(some.equal(seen_by_formula(stored.narrow(0, 2, 2))));
  }
}

// With the frames for channels, the result would be another one.
TEST_P(Clips, TheAxisOfTheChannelsCounts) {
  auto spec = spec_of_clips(GetParam());
  spec.shape = {3, 3, 4, 4};
  spec.axis = 0;
  const auto stored = torch::arange(144).view({1, 3, 3, 4, 4}).to(GetParam());
  const Batch batch{.inputs = stored, .targets = torch::zeros({1}, torch::kInt64)};
  BatchStage stage({.spec = spec});
  stage.reserve(1);
  const auto seen = stage.stage(batch, 0, 1).at("input");
  const auto turned = seen_by_formula(stored.transpose(1, 2).contiguous());
  EXPECT_TRUE(seen.equal(turned.transpose(1, 2)));
  EXPECT_FALSE(seen.equal(seen_by_formula(stored)));
}

}  // namespace
}  // namespace lockstep::data
