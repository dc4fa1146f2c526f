#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/models/deferred.h"
#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"
#include "tests/support/oracle.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct Size {
  std::int64_t vocabulary, context, hidden, layers, heads;
};

std::shared_ptr<Model> gpt_of(const Size& size, double dropout = 0,
                              bool packed = false) {
  torch::manual_seed(7);
  Shape shape{{size.context}, size.vocabulary};
  if (packed) {
    shape.tensors = {
        {.name = "segment", .shape = {size.context}, .dtype = torch::kInt64}};
  }
  return build({.name = "gpt",
                .hidden = size.hidden,
                .layers = size.layers,
                .heads = size.heads,
                .dropout = dropout},
               shape);
}

std::int64_t count_of(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& p : module.parameters()) count += p.numel();
  return count;
}

void expect_that_of_transformers(const Size& size, std::int64_t batch,
                                 std::int64_t length) {
  const auto model = gpt_of(size);
  // Not as they begin: norms of 1 and biases of 0 hide mistakes.
  {
    const torch::NoGradGuard no_grad;
    for (auto& p : model->parameters()) p.add_(torch::randn_like(p), 0.05);
  }
  const auto tokens = torch::randint(size.vocabulary, {batch, length}, torch::kInt64);
  const auto targets = torch::randint(size.vocabulary, {batch, length}, torch::kInt64);
  const auto logits = model->forward(tokens);
  const auto loss = torch::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
  loss.backward();
  std::vector<std::pair<std::string, Tensor>> tensors{{"tokens", tokens},
                                                      {"targets", targets},
                                                      {"logits", logits.detach()},
                                                      {"loss", loss.detach()}};
  for (const auto& item : model->named_parameters()) {
    tensors.emplace_back("weight." + item.key(), item.value().detach());
    tensors.emplace_back("gradient." + item.key(), item.value().grad());
  }
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "gpt.safetensors";
  checkpoint::write_safetensors(file, std::move(tensors));
  test::expect_oracle_agrees("gpt.py", {file.string(), std::to_string(size.heads)});
}

TEST(Gpt, IsThatOfTransformers) {
  LOCKSTEP_NEEDS_ORACLE();
  expect_that_of_transformers({97, 24, 48, 3, 4}, 3, 17);
}

TEST(Gpt, IsThatOfTransformersAt124Million) {
  LOCKSTEP_NEEDS_ORACLE();
  expect_that_of_transformers({50257, 1024, 768, 12, 12}, 1, 40);
}

TEST(Gpt, SizesByNameHaveTheParametersOfGpt2) {
  const std::map<std::string_view, std::int64_t> counts = {{"gpt2", 124'439'808},
                                                           {"gpt2-medium", 354'823'168},
                                                           {"gpt2-large", 774'030'080},
                                                           {"gpt2-xl", 1'557'611'200}};
  EXPECT_EQ(config::kGptSizes.size(), counts.size());
  for (const auto& size : config::kGptSizes) {
    const DeferredMemory deferred;
    const auto model = build({.name = "gpt",
                              .size = std::string(size.name),
                              .hidden = size.hidden,
                              .layers = size.layers,
                              .heads = size.heads},
                             {{1024}, 50257});
    EXPECT_EQ(count_of(*model), counts.at(size.hf_name)) << size.name;
    EXPECT_EQ(model->num_blocks(), static_cast<std::size_t>(size.layers));
  }
}

// The model with its vocabulary filled up to a multiple.
std::shared_ptr<Model> padded_gpt(std::int64_t multiple) {
  torch::manual_seed(7);
  return build({.name = "gpt",
                .hidden = 32,
                .layers = 2,
                .heads = 4,
                .pad_vocabulary = multiple},
               {{16}, 31});
}

TEST(Gpt, RowsThatFillUpTheVocabularyChangeNoResult) {
  const auto plain = padded_gpt(1), padded = padded_gpt(64);
  const auto tokens = torch::arange(48).view({3, 16}).remainder(31);
  const auto loss_of = [&](Model& model) {
    const auto logits = model.forward(tokens);
    EXPECT_EQ(logits.size(2), 31);
    // Smoothed labels look at every class: one of no token would show.
    const auto loss = torch::nn::functional::cross_entropy(
        logits.flatten(0, 1), tokens.flatten(),
        torch::nn::functional::CrossEntropyFuncOptions().label_smoothing(0.1));
    loss.backward();
    return loss.item<double>();
  };
  EXPECT_NEAR(loss_of(*plain), loss_of(*padded), 1e-6);  // sums of other lengths
  const auto ours = padded->named_parameters(), others = plain->named_parameters();
  ASSERT_EQ(ours.size(), others.size());
  for (const auto& item : others) {
    const auto& tensor = ours[item.key()];
    const bool fills = item.key() == "wte.weight";
    EXPECT_EQ(tensor.size(0), fills ? 64 : item.value().size(0)) << item.key();
    const auto rows = item.value().size(0);
    EXPECT_TRUE(tensor.narrow(0, 0, rows).equal(item.value())) << item.key();
    EXPECT_TRUE(
        tensor.grad().narrow(0, 0, rows).allclose(item.value().grad(), 1e-4, 1e-6))
        << item.key();
    if (!fills) continue;
    EXPECT_EQ(tensor.narrow(0, 31, 33).abs().max().item<double>(), 0);
    EXPECT_EQ(tensor.grad().narrow(0, 31, 33).abs().max().item<double>(), 0);
  }
}

TEST(Gpt, MayLearnMorePositionsThanASampleHas) {
  const auto model = build({.name = "gpt", .hidden = 32, .context = 24}, {{16}, 31});
  EXPECT_EQ(model->named_parameters()["wpe.weight"].size(0), 24);
  EXPECT_EQ(model->forward(torch::zeros({1, 24}, torch::kInt64)).size(1), 24);
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 build({.name = "gpt", .context = 12}, {{16}, 31});
                               }),
              HasSubstr("model.context: 12 positions, but a sample has 16"));
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 build({.name = "gpt", .size = "gpt2"}, {{16}, 31});
                               }),
              HasSubstr("gpt2 is hidden=768"));
}

TEST(Gpt, NoTokenSeesALaterOne) {
  const auto model = gpt_of({31, 16, 32, 2, 4});
  auto tokens = torch::randint(31, {2, 16}, torch::kInt64);
  const auto before = model->forward(tokens);
  tokens.select(1, 9).add_(1).remainder_(31);
  const auto after = model->forward(tokens);
  EXPECT_TRUE(after.narrow(1, 0, 9).equal(before.narrow(1, 0, 9)));
  EXPECT_FALSE(after.narrow(1, 9, 7).equal(before.narrow(1, 9, 7)));
}

// Rows of several sequences give what each of them gives alone.
TEST(Gpt, SequencesInOneRowDoNotSeeEachOther) {
  const Size size{31, 16, 32, 2, 4};
  for (const double dropout : {0.0, 0.2}) {
    const auto packed = gpt_of(size, dropout, /*packed=*/true);
    const auto plain = gpt_of(size, dropout);
    packed->train(dropout == 0);
    plain->train(dropout == 0);
    const auto a = torch::randint(31, {1, 7}, torch::kInt64);
    const auto b = torch::randint(31, {1, 5}, torch::kInt64);
    const auto whole = [](std::int64_t n, std::int64_t value) {
      return torch::full({1, n}, value, torch::kInt64);
    };
    const Named row{
        {"input", torch::cat({a, b, whole(4, 0)}, 1)},
        {"segment", torch::cat({whole(7, 1), whole(5, 2), whole(4, 0)}, 1)},
        {"position", torch::cat({torch::arange(7), torch::arange(5), torch::zeros({4})})
                         .to(torch::kInt64)
                         .unsqueeze(0)}};
    EXPECT_THAT(packed->inputs(), testing::ElementsAre("input", "segment", "position"));
    const auto logits = packed->forward_named(row).at("output");
    EXPECT_TRUE(logits.narrow(1, 0, 7).allclose(plain->forward(a), 1e-5, 1e-6));
    EXPECT_TRUE(logits.narrow(1, 7, 5).allclose(plain->forward(b), 1e-5, 1e-6));
    EXPECT_TRUE(logits.isfinite().all().item<bool>());
  }
}

TEST(Gpt, BlocksThatAreComputedAgainGiveTheSameBits) {
  std::vector<std::vector<Tensor>> gradients;
  for (const int every : {0, 1}) {
    const auto model = gpt_of({31, 16, 32, 3, 4}, 0.1);
    draw_by_sample(*model, 3)->begin(0, 0, 4);
    model->recompute_every(every);
    EXPECT_EQ(model->num_blocks(), 3U);
    const auto tokens = torch::arange(64).view({4, 16}).remainder(31);
    model->forward(tokens).square().sum().backward();
    gradients.emplace_back();
    for (const auto& p : model->parameters()) gradients.back().push_back(p.grad());
  }
  for (std::size_t i = 0; i < gradients[0].size(); ++i) {
    EXPECT_TRUE(gradients[0][i].equal(gradients[1][i])) << i;
  }
}

TEST(Gpt, WhatItCanNotReadIsRefused) {
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 build({.name = "gpt"}, {{3, 8, 8}, 10});
                               }),
              HasSubstr("choose data.name=tokens"));
  EXPECT_THAT(
      test::error_text(Fault::config,
                       [] {
                         build({.name = "gpt", .hidden = 50, .heads = 4}, {{8}, 10});
                       }),
      HasSubstr("50 = 12 * 4 + 2"));
  const auto model = gpt_of({31, 16, 32, 1, 4});
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] {
                                 model->forward(torch::zeros({1, 17}, torch::kInt64));
                               }),
              HasSubstr("has 17 tokens, the model was built for 16"));
}

}  // namespace
}  // namespace lockstep::models
