#include "lockstep/models/model.h"
#include "lockstep/models/summary.h"
#include "tests/support/support.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;

std::int64_t num_parameters(const Model& model) {
  std::int64_t total = 0;
  for (const auto& layer : summarize(model)) total += layer.num_parameters;
  return total;
}

TEST(Registry, BuildsEachModelForTheShapeOfTheData) {
  const Shape shape{{1, 28, 28}, 10};
  const auto cnn = build({.name = "cnn"}, shape);
  EXPECT_EQ(cnn->forward(torch::zeros({3, 1, 28, 28})).sizes(),
            (torch::IntArrayRef{3, 10}));
  // 1*32*9+32 + 32*64*9+64 + 3136*256+256 + 256*10+10
  EXPECT_EQ(num_parameters(*cnn), 824458);
  const auto mlp = build({.name = "mlp", .hidden = 100, .layers = 3}, {{3, 5, 7}, 4});
  EXPECT_EQ(mlp->forward(torch::zeros({2, 3, 5, 7})).sizes(),
            (torch::IntArrayRef{2, 4}));
  EXPECT_EQ(num_parameters(*mlp),
            105 * 100 + 100 + 2 * (100 * 100 + 100) + 100 * 4 + 4);
}

TEST(Registry, AModelPredictsEachNumberOfATargetWithoutClasses) {
  const auto outputs = [](const std::string& name,
                          const std::vector<std::int64_t>& target) {
    const Shape shape{
        {3, 32, 32}, 0, {{.name = "input"}, {.name = "target", .shape = target}}};
    auto model = build({.name = name}, shape);
    model->eval();
    return model->forward(torch::rand({2, 3, 32, 32})).size(1);
  };
  for (const auto* name : {"mlp", "cnn", "resnet9", "resnet18"}) {
    EXPECT_EQ(outputs(name, {}), 1) << name;
    EXPECT_EQ(outputs(name, {4}), 4) << name;
  }
}

TEST(Registry, AnUnknownModelGetsASuggestion) {
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 build({.name = "cmn"}, {{1, 28, 28}, 10});
                               }),
              HasSubstr("did you mean 'cnn'?"));
}

TEST(Registry, AShapeThatTheCnnCanNotTakeIsRefused) {
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 build({.name = "cnn"}, {{1, 3, 28}, 10});
                               }),
              HasSubstr("[1, 3, 28]"));
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 build({.name = "cnn"}, {{784}, 10});
                               }),
              HasSubstr("model.name=mlp"));
}

TEST(Registry, AModelOfNumbersRefusesTokens) {
  Shape tokens{{16}, 50};
  tokens.tensors = {{.name = "input", .shape = {16}, .dtype = torch::kInt64},
                    {.name = "target", .shape = {16}, .dtype = torch::kInt64}};
  for (const auto* name : {"mlp", "cnn", "resnet9"}) {
    EXPECT_THAT(test::error_text(Fault::config, [&] { build({.name = name}, tokens); }),
                HasSubstr("but the input of the data is int64, as tokens are; set "
                          "model.name=gpt for tokens, or save numbers as float32"));
  }
  EXPECT_NO_THROW(build({.name = "gpt"}, tokens));
  tokens.tensors[0].dtype = torch::kUInt8;
  EXPECT_NO_THROW(build({.name = "mlp"}, tokens));
}

TEST(Registry, DropoutActsInTrainingOnly) {
  torch::manual_seed(0);
  const auto mlp = build({.name = "mlp", .hidden = 64, .dropout = 0.5}, {{8}, 2});
  const auto x = torch::randn({4, 8});
  EXPECT_FALSE(mlp->forward(x).equal(mlp->forward(x)));
  mlp->eval();
  EXPECT_TRUE(mlp->forward(x).equal(mlp->forward(x)));
}

TEST(Summary, NamesLayersAsPythonDoes) {
  const auto layers = summarize(*build({.name = "cnn"}, {{1, 28, 28}, 10}));
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0].name, "conv1");
  EXPECT_EQ(layers[0].type, "Conv2d");
  EXPECT_EQ(layers[0].num_parameters, 320);
  EXPECT_EQ(layers[0].num_bytes, 1280);
  EXPECT_EQ(layers[3].name, "output");
}

}  // namespace
}  // namespace lockstep::models
