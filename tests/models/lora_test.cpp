#include "lockstep/models/lora.h"

#include <gmock/gmock.h>

#include "lockstep/base/error.h"
#include "lockstep/models/linear.h"
#include "lockstep/models/model.h"

namespace lockstep::models {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::shared_ptr<Model> small_gpt() {
  torch::manual_seed(3);
  return build({.name = "gpt", .hidden = 16, .layers = 2, .heads = 2},
               {.input = {8}, .num_classes = 11});
}

const torch::Tensor& parameter_of(const Model& model, const std::string& name) {
  return *model.named_parameters().find(name);
}

TEST(Lora, NewAdaptersChangeNothingAndTrainAlone) {
  const auto model = small_gpt();
  const auto tokens = torch::randint(11, {2, 8});
  const auto before = model->forward(tokens);
  const auto names = add_lora(*model, {.rank = 3, .targets = "*.c_attn, h.1.mlp.c_fc"});
  EXPECT_THAT(names, ElementsAre("h.0.attn.c_attn", "h.1.attn.c_attn", "h.1.mlp.c_fc"));
  EXPECT_TRUE(model->forward(tokens).equal(before));
  model->forward(tokens).sum().backward();
  for (const auto& item : model->named_parameters()) {
    EXPECT_EQ(item.value().requires_grad(), is_lora(item.key())) << item.key();
    EXPECT_EQ(item.value().grad().defined(), is_lora(item.key())) << item.key();
  }
  EXPECT_GT(
      parameter_of(*model, "h.0.attn.c_attn.lora_B").grad().abs().sum().item<double>(),
      0);
}

TEST(Lora, MergedWeightsComputeTheSame) {
  const auto model = small_gpt();
  add_lora(*model, {.rank = 4, .alpha = 6, .targets = "*.c_attn,*.c_proj,*.c_fc"});
  {
    const torch::NoGradGuard no_grad;
    for (const auto& item : model->named_parameters()) {
      if (is_lora(item.key())) item.value().normal_(0, 0.3);
    }
  }
  const auto tokens = torch::randint(11, {3, 8});
  const auto with_adapters = model->forward(tokens);
  const auto plain = small_gpt();
  const torch::NoGradGuard no_grad;
  for (const auto& [name, tensor] : merged_state(*model)) {
    parameter_of(*plain, name).copy_(tensor);
  }
  EXPECT_GT((with_adapters - small_gpt()->forward(tokens)).abs().max().item<double>(),
            1e-2);
  EXPECT_LT((with_adapters - plain->forward(tokens)).abs().max().item<double>(), 1e-5);
}

TEST(Lora, DropoutIsBeforeTheAdapterOnly) {
  Linear layer(4, 4);
  layer->add_lora({.rank = 2, .scale = 1, .dropout = 0.5});
  const auto x = torch::ones({64, 4});
  EXPECT_TRUE(layer->forward(x).equal(torch::linear(x, layer->weight, layer->bias)))
      << "the second matrix is zero";
  {
    const torch::NoGradGuard no_grad;
    layer->lora_B.fill_(1);
  }
  EXPECT_FALSE(layer->forward(x).std(0).eq(0).all().item<bool>());
  layer->eval();
  EXPECT_TRUE(layer->forward(x).std(0).lt(1e-6).all().item<bool>());
}

TEST(Lora, APatternThatFitsNothingIsAnError) {
  const auto model = small_gpt();
  try {
    add_lora(*model, {.rank = 2, .targets = "*.c_atn"});
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.fault(), Fault::config);
    EXPECT_THAT(error.what(), HasSubstr("no layer fits '*.c_atn'; there are 8"));
    EXPECT_THAT(error.what(), HasSubstr("h.0.attn.c_attn"));
  }
  const auto cnn = build({.name = "cnn"}, {.input = {1, 28, 28}, .num_classes = 10});
  EXPECT_THROW(add_lora(*cnn, {.rank = 2}), Error);
}

}  // namespace
}  // namespace lockstep::models
