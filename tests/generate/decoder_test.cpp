#include "lockstep/generate/decoder.h"

#include <gtest/gtest.h>

#include "lockstep/base/error.h"
#include "tests/generate/tiny_model.h"

namespace lockstep::generate {
namespace {

using Tokens = std::vector<std::int64_t>;

// The logits behind the last token, computed from scratch.
torch::Tensor logits_of(models::Model& model, const Tokens& tokens) {
  const torch::NoGradGuard no_grad;
  return model.forward(torch::tensor(tokens).unsqueeze(0))[0].select(
      0, static_cast<std::int64_t>(tokens.size()) - 1);
}

void expect_close(const torch::Tensor& a, const torch::Tensor& b) {
  EXPECT_LT((a - b).abs().max().item<double>(), 1e-3) << "logits are about ten";
  EXPECT_TRUE(a.argmax().equal(b.argmax()));
}

TEST(Decoder, KeepsWhatItHasComputedAndComesToTheSame) {
  const auto model = test::tiny_gpt(520);
  Decoder decoder(test::weights_of(*model));
  EXPECT_EQ(decoder.context(), 520);
  decoder.begin(1, 520);
  Tokens tokens{72, 101, 108, 108, 111};
  auto logits = decoder.prefill(0, tokens);
  while (tokens.size() < 5 + 512) {
    const auto next = logits.argmax().item<std::int64_t>();
    if (tokens.size() % 50 == 0) expect_close(logits, logits_of(*model, tokens));
    ASSERT_EQ(next, logits_of(*model, tokens).argmax().item<std::int64_t>())
        << "at " << tokens.size();
    tokens.push_back(next);
    logits = decoder.step({next})[0];
  }
}

TEST(Decoder, RowsOfDifferentLengthsDoNotTouchEachOther) {
  const auto model = test::tiny_gpt();
  Decoder decoder(test::weights_of(*model));
  std::vector<Tokens> rows{{1, 2, 3}, {9}, {4, 5, 6, 7, 8}};
  decoder.begin(3, 20);
  for (std::int64_t row = 0; row < 3; ++row) {
    expect_close(decoder.prefill(row, rows[static_cast<std::size_t>(row)]),
                 logits_of(*model, rows[static_cast<std::size_t>(row)]));
  }
  for (std::int64_t step = 0; step < 5; ++step) {
    Tokens next;
    for (auto& row : rows) {
      next.push_back(10 * step + static_cast<std::int64_t>(row.size()));
      row.push_back(next.back());
    }
    const auto logits = decoder.step(next);
    for (std::size_t row = 0; row < rows.size(); ++row) {
      expect_close(logits[static_cast<std::int64_t>(row)],
                   logits_of(*model, rows[row]));
    }
    if (step != 2) continue;
    decoder.keep({0, 2});
    rows.erase(rows.begin() + 1);
  }
  EXPECT_EQ(decoder.length(1), 10);
}

TEST(Decoder, ALongPromptMayComeInPieces) {
  const auto model = test::tiny_gpt();
  Decoder decoder(test::weights_of(*model));
  decoder.begin(1, 30);
  decoder.prefill(0, {5, 6, 7});
  expect_close(decoder.prefill(0, {8, 9}), logits_of(*model, {5, 6, 7, 8, 9}));
}

TEST(Decoder, RowsOfNoTokenAreNeverChosen) {
  auto weights = test::weights_of(*test::tiny_gpt());
  weights.vocabulary = 200;
  Decoder decoder(std::move(weights));
  decoder.begin(1, 10);
  EXPECT_EQ(decoder.prefill(0, {1}).size(0), 200);
}

TEST(Decoder, OtherWeightsAreRefused) {
  auto weights = test::weights_of(*test::tiny_gpt());
  weights.heads = 5;
  EXPECT_THROW(Decoder{weights}, Error);
  weights.heads = 4;
  weights.tensors.erase("h.1.mlp.c_fc.bias");
  EXPECT_THROW(Decoder{weights}, Error);
  weights.tensors.clear();
  EXPECT_THROW(Decoder{weights}, Error);
}

}  // namespace
}  // namespace lockstep::generate
