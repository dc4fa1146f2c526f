#include "lockstep/checkpoint/safetensors.h"
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

TEST(Gpt, HasTheParametersOfGpt2) {
  EXPECT_EQ(count_of(*gpt_of({50257, 1024, 768, 12, 12})), 124'439'808);
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
