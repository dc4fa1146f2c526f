#include "lockstep/models/dropout.h"

#include "tests/support/support.h"

namespace lockstep::models {
namespace {

struct TwoDropouts : torch::nn::Module {
  Dropout first = register_module("first", Dropout(0.5));
  Dropout second = register_module("second", Dropout(0.5));
};

TEST(DropoutBySample, GradientsAreDroppedWhereTheirValuesWere) {
  const TwoDropouts model;
  const auto pass = draw_by_sample(model, 1);
  for (const bool channels_last : {false, true}) {
    auto x = torch::rand({4, 3, 5, 6}) + 1;
    if (channels_last) x = x.contiguous(torch::MemoryFormat::ChannelsLast);
    x.requires_grad_(true);
    pass->begin(0, 0, 4);
    auto first = model.first;
    const auto y = first(x);
    EXPECT_EQ(y.strides(), x.strides());
    y.sum().backward();
    EXPECT_TRUE(torch::equal(x.grad() * x.detach(), y.detach()));
  }
}

TEST(DropoutBySample, LayersCallsEpochsAndSeedsDiffer) {
  TwoDropouts model;
  const auto pass = draw_by_sample(model, 1);
  const auto ones = torch::ones({2, 500});
  pass->begin(3, 10, 2);
  const auto drawn = model.first(ones);
  EXPECT_FALSE(torch::equal(drawn[0], drawn[1])) << "samples";
  EXPECT_FALSE(torch::equal(model.second(ones), drawn)) << "layers";
  EXPECT_FALSE(torch::equal(model.first(ones), drawn)) << "calls";
  pass->begin(4, 10, 2);
  EXPECT_FALSE(torch::equal(model.first(ones), drawn)) << "epochs";
  pass->begin(3, 10, 2);
  EXPECT_TRUE(torch::equal(model.first(ones), drawn)) << "the first call of that pass";
  draw_by_sample(model, 2)->begin(3, 10, 2);
  EXPECT_FALSE(torch::equal(model.first(ones), drawn)) << "seeds";
}

// As tokens are after they were flattened: (batch * length, width).
TEST(DropoutBySample, RowsOfASampleMayStandBelowEachOther) {
  TwoDropouts model;
  const auto pass = draw_by_sample(model, 1);
  const auto ones = torch::ones({6, 100});
  pass->begin(0, 0, 2);
  const auto both = model.first(ones);
  pass->begin(0, 1, 1);
  EXPECT_TRUE(torch::equal(model.first(ones.narrow(0, 0, 3)), both.narrow(0, 3, 3)));
}

}  // namespace
}  // namespace lockstep::models
