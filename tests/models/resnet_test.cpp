#include "lockstep/models/model.h"
#include "lockstep/models/summary.h"
#include "tests/support/support.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;

std::int64_t size_of_net(const std::string& name, const Shape& shape) {
  std::int64_t total = 0;
  const auto net = build({.name = name}, shape);
  for (const auto& parameter : net->parameters()) total += parameter.numel();
  return total;
}

// The numbers that torchvision's documentation gives for its models.
TEST(ResNet, HasThePublishedNumberOfParameters) {
  const Shape imagenet{{3, 224, 224}, 1000};
  EXPECT_EQ(size_of_net("resnet18", imagenet), 11'689'512);
  EXPECT_EQ(size_of_net("resnet34", imagenet), 21'797'672);
  EXPECT_EQ(size_of_net("resnet50", imagenet), 25'557'032);
}

TEST(ResNet, HasTorchvisionsNames) {
  const auto net = build({.name = "resnet18"}, {{3, 32, 32}, 10});
  const auto parameters = net->named_parameters();
  for (const auto* name :
       {"conv1.weight", "bn1.bias", "layer1.0.conv1.weight",
        "layer2.0.downsample.0.weight", "layer4.1.bn2.weight", "fc.bias"}) {
    EXPECT_NE(parameters.find(name), nullptr) << name;
  }
  EXPECT_NE(net->named_buffers().find("layer2.0.downsample.1.running_mean"), nullptr);
}

TEST(ResNet, ASmallImageIsNotReducedBeforeTheFirstBlock) {
  const auto small = build({.name = "resnet18"}, {{3, 32, 32}, 10});
  EXPECT_EQ(small->named_parameters()["conv1.weight"].sizes(),
            (torch::IntArrayRef{64, 3, 3, 3}));
  const auto large = build({.name = "resnet18"}, {{3, 96, 96}, 10});
  EXPECT_EQ(large->named_parameters()["conv1.weight"].sizes(),
            (torch::IntArrayRef{64, 3, 7, 7}));
  for (const auto& [net, pixels] : {std::pair(small, 32), std::pair(large, 96)}) {
    EXPECT_EQ(net->forward(torch::zeros({2, 3, pixels, pixels})).sizes(),
              (torch::IntArrayRef{2, 10}));
  }
}

TEST(ResNet, NineLayersTakeOneChannel) {
  const auto net = build({.name = "resnet9"}, {{1, 28, 28}, 10});
  EXPECT_EQ(net->forward(torch::zeros({2, 1, 28, 28})).sizes(),
            (torch::IntArrayRef{2, 10}));
  EXPECT_EQ(net->num_blocks(), 6U);
}

TEST(ResNet, WhatIsNoImageIsRefused) {
  for (const auto* name : {"resnet9", "resnet18", "resnet50"}) {
    EXPECT_THAT(test::error_text(Fault::config,
                                 [&] {
                                   build({.name = name}, {{784}, 10});
                                 }),
                HasSubstr("[784]"))
        << name;
  }
}

}  // namespace
}  // namespace lockstep::models
