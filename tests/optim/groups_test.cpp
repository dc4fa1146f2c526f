#include "lockstep/optim/groups.h"

#include "tests/support/support.h"

namespace lockstep::optim {
namespace {

const std::vector<ParameterShape> kModel{{"embed.weight", 2},
                                         {"blocks.0.linear.weight", 2},
                                         {"blocks.0.linear.bias", 1},
                                         {"blocks.0.norm.weight", 1},
                                         {"blocks.1.linear.weight", 2},
                                         {"head.weight", 2},
                                         {"head.scale", 0}};

std::vector<double> decays(const std::string& no_decay) {
  config::OptimConfig config;
  config.weight_decay = 0.1;
  config.no_decay = no_decay;
  std::vector<double> out;
  for (const auto& options : parameter_options(config, kModel)) {
    out.push_back(options.weight_decay);
    EXPECT_EQ(options.lr_scale, 1);
  }
  return out;
}

using testing::ElementsAre;

TEST(Groups, EveryParameterDecaysUnlessARuleSaysOtherwise) {
  EXPECT_THAT(decays("none"), ElementsAre(0.1, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1));
}

TEST(Groups, AutoLeavesOutWhatHasOneDimensionOrNone) {
  EXPECT_THAT(decays("auto"), ElementsAre(0.1, 0.1, 0, 0, 0.1, 0.1, 0));
}

TEST(Groups, PatternsLeaveOutWhatTheyFit) {
  EXPECT_THAT(decays("*.bias, embed.*"), ElementsAre(0, 0.1, 0, 0.1, 0.1, 0.1, 0.1));
}

TEST(Groups, APatternThatFitsNothingIsRefused) {
  EXPECT_THAT(test::error_text(Fault::config, [] { decays("*.bias,*.biass"); }),
              testing::HasSubstr("optim.no_decay: '*.biass' fits no parameter"));
}

TEST(Groups, LayersNearTheInputLearnMoreSlowly) {
  config::OptimConfig config;
  config.layer_decay = 0.5;
  std::vector<double> scales;
  for (const auto& options : parameter_options(config, kModel)) {
    scales.push_back(options.lr_scale);
  }
  EXPECT_THAT(scales, ElementsAre(0.125, 0.25, 0.25, 0.25, 0.5, 1, 1));
}

TEST(Groups, AModelWithoutParametersHasNoOptions) {
  EXPECT_TRUE(parameter_options({}, {}).empty());
}

}  // namespace
}  // namespace lockstep::optim
