#include "lockstep/optim/flat_parameters.h"

#include "tests/support/support.h"

namespace lockstep::optim {
namespace {

struct Net : torch::nn::Module {
  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear linear{nullptr};
  torch::Tensor frozen, empty, scalar;

  Net() {
    conv = register_module("conv", torch::nn::Conv2d(3, 5, 3));
    linear = register_module("linear", torch::nn::Linear(5, 7));
    frozen = register_parameter("frozen", torch::ones({4}), /*requires_grad=*/false);
    empty = register_parameter("empty", torch::zeros({0, 3}));
    scalar = register_parameter("scalar", torch::tensor(2.5F));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return linear(conv(x).mean({2, 3})) * scalar + frozen.sum() + empty.sum();
  }
};

TEST(FlatParameters, ParametersKeepValuesShapesAndLayout) {
  Net net;
  net.conv->weight.set_data(
      net.conv->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
  std::vector<torch::Tensor> before;
  for (const auto& p : net.parameters()) before.push_back(p.detach().clone());
  const auto strides = net.conv->weight.strides().vec();
  FlatParameters flat(net);
  const auto after = net.parameters();
  for (std::size_t i = 0; i < after.size(); ++i)
    EXPECT_TRUE(after[i].equal(before[i])) << i;
  EXPECT_EQ(net.conv->weight.strides().vec(), strides);
  EXPECT_EQ(flat.num_parameters(), 5 * 3 * 9 + 5 + 5 * 7 + 7 + 0 + 1);
}

TEST(FlatParameters, ValuesAndGradientsAreViewsOfTheBuffers) {
  Net net;
  FlatParameters flat(net);
  flat.values().fill_(0.5);
  for (const auto& p : net.parameters()) {
    EXPECT_EQ(p.eq(0.5).all().item<bool>(), p.requires_grad());
  }
  EXPECT_TRUE(net.frozen.eq(1).all().item<bool>());
  net.forward(torch::randn({2, 3, 6, 6})).sum().backward();
  EXPECT_GT(flat.gradients().abs().sum().item<double>(), 0);
  const void* place = net.conv->weight.grad().data_ptr();
  flat.zero_gradients();
  EXPECT_EQ(net.conv->weight.grad().abs().sum().item<double>(), 0);
  net.forward(torch::randn({2, 3, 6, 6})).sum().backward();
  EXPECT_EQ(net.conv->weight.grad().data_ptr(), place);
}

TEST(FlatParameters, GradientsEqualThoseOfAPlainModule) {
  torch::manual_seed(3);
  Net plain;
  torch::manual_seed(3);
  Net flattened;
  FlatParameters flat(flattened);
  const auto x = torch::randn({2, 3, 6, 6});
  plain.forward(x).square().sum().backward();
  flattened.forward(x).square().sum().backward();
  const auto a = plain.named_parameters();
  for (const auto& item : flattened.named_parameters()) {
    if (!item.value().requires_grad()) continue;
    EXPECT_TRUE(item.value().grad().equal(a[item.key()].grad())) << item.key();
  }
}

TEST(FlatParameters, SparseGradientsOfAnEmbeddingAddUpInTheBuffer) {
  struct Words : torch::nn::Module {
    torch::nn::Embedding table = register_module(
        "table", torch::nn::Embedding(torch::nn::EmbeddingOptions(5, 3).sparse(true)));
  } net;
  FlatParameters flat(net);
  for (int pass = 0; pass < 2; ++pass) {
    net.table(torch::tensor({1, 4, 1})).sum().backward();
  }
  EXPECT_TRUE(net.table->weight.grad().is_alias_of(flat.gradients()));
  EXPECT_TRUE(net.table->weight.grad().select(1, 0).equal(
      torch::tensor({0.0F, 4.0F, 0.0F, 0.0F, 2.0F})));
}

TEST(FlatParameters, AModelWithNothingToTrainIsRefused) {
  torch::nn::Linear linear(2, 2);
  for (auto& p : linear->parameters()) p.requires_grad_(false);
  EXPECT_THAT(test::error_text(Fault::config, [&] { FlatParameters flat(*linear); }),
              testing::HasSubstr("no trainable parameter"));
}

TEST(FlatParameters, MixedDtypesAreRefusedByName) {
  torch::nn::Sequential net(torch::nn::Linear(2, 2), torch::nn::Linear(2, 2));
  net->ptr(1)->to(torch::kFloat64);
  EXPECT_THAT(test::error_text(Fault::config, [&] { FlatParameters flat(*net); }),
              testing::HasSubstr("'1.weight' is double"));
}

}  // namespace
}  // namespace lockstep::optim
