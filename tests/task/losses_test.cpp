// Losses by their definitions; oracle_test.cpp compares them with PyTorch's own.
#include "lockstep/task/losses.h"

#include <cmath>
#include <limits>

#include "tests/support/support.h"

namespace lockstep::task {
namespace {

using config::Uncertain;
using torch::Tensor;

constexpr float kMissing = std::numeric_limits<float>::quiet_NaN();

TEST(Losses, WeightsAreUndefinedWhereEveryTargetCountsAsOne) {
  const auto classes = torch::zeros({3}, torch::kInt64);
  EXPECT_FALSE(cross_entropy_weight(classes, {}).defined());
  EXPECT_FALSE(cross_entropy_weight(classes, {.label_smoothing = 0.1}).defined());
  EXPECT_FALSE(
      cross_entropy_weight(torch::rand({3, 2}), {.class_weights = torch::ones({2})})
          .defined())
      << "shares are counted, as in PyTorch";
  EXPECT_FALSE(regression_weight({}).defined());
  EXPECT_FALSE(
      binary_cross_entropy_weight(torch::zeros({3, 2}, torch::kUInt8), {}).defined())
      << "bytes cannot say that a label is missing";
  EXPECT_EQ(cross_entropy_weight(classes, {.ignore_index = 1}).item<double>(), 3);
  EXPECT_EQ(binary_cross_entropy_weight(torch::zeros({3, 2}), {}).item<double>(), 6);
}

// PyTorch's -100 is a label as any other: half of it would be ignored.
TEST(Losses, NoTargetIsIgnoredUnlessItIsSaid) {
  const auto logits = torch::zeros({2, 3});
  const auto targets = torch::tensor({0, -100}, torch::kInt64);
  EXPECT_ANY_THROW(cross_entropy(logits, targets, {}));
  EXPECT_ANY_THROW(cross_entropy(logits, targets, {.label_smoothing = 0.1}));
  EXPECT_NEAR(cross_entropy(logits, targets, {.ignore_index = -100}).item<double>(),
              std::log(3.0), 1e-6);
}

TEST(Losses, LabelsThatAreMissingOrUncertainDoNotCount) {
  const auto targets = torch::tensor({{1.0F, kMissing}, {-1.0F, 0.0F}});
  const auto valid = torch::tensor({{true, false}, {false, true}});
  const auto ignored = known_labels(targets, Uncertain::ignore);
  EXPECT_TRUE(ignored.valid.equal(valid));
  EXPECT_TRUE(ignored.values.equal(torch::tensor({{1.0F, 0.0F}, {0.0F, 0.0F}})));
  const auto one = known_labels(targets, Uncertain::one);
  EXPECT_TRUE(one.values.equal(torch::tensor({{1.0F, 0.0F}, {1.0F, 0.0F}})));
  EXPECT_TRUE(one.valid.equal(torch::tensor({{true, false}, {true, true}})));
  const auto zero = known_labels(targets, Uncertain::zero);
  EXPECT_TRUE(zero.values.equal(torch::tensor({{1.0F, 0.0F}, {0.0F, 0.0F}})));
  const auto masked = known_labels(targets, Uncertain::one, valid);
  EXPECT_TRUE(masked.valid.equal(valid));
}

// What does not count may be anything.
TEST(Losses, WhatIsMaskedChangesNeitherSumNorGradient) {
  const auto mask = torch::tensor({true, false});
  const auto logits = torch::tensor({{1.0F, 2.0F}, {3.0F, 4.0F}}).requires_grad_(true);
  const auto targets = torch::tensor({1, -7}, torch::kInt64);
  for (const double gamma : {0.0, 2.0, 0.5}) {
    const CrossEntropyOptions options{.focal_gamma = gamma};
    const auto sum = cross_entropy(logits, targets, options, {mask});
    const auto first =
        cross_entropy(logits.slice(0, 0, 1), targets.slice(0, 0, 1), options);
    EXPECT_EQ(sum.item<float>(), first.item<float>());
    EXPECT_EQ(cross_entropy_weight(targets, options, {mask}).item<double>(), 1);
    const auto gradient = torch::autograd::grad({sum}, {logits})[0];
    EXPECT_EQ(gradient[1].abs().sum().item<float>(), 0);
  }
  const auto numbers = torch::tensor({1.0F, kMissing});
  const auto said = torch::tensor({3.0F, 5.0F}).requires_grad_(true);
  const auto loss = regression_loss(said, numbers, {}, {mask});
  EXPECT_EQ(loss.item<float>(), 4);
  EXPECT_EQ(torch::autograd::grad({loss}, {said})[0][1].item<float>(), 0);
}

// The factor of an answer that is certain is 0, and its derivative must not be a NaN.
TEST(Losses, FocalHasGradientsWhereAnAnswerIsCertain) {
  const auto targets = torch::zeros({1}, torch::kInt64);
  for (const double gamma : {0.5, 1.0, 2.0}) {
    const auto logits = torch::tensor({{200.0F, -200.0F}}).requires_grad_(true);
    const auto sum = cross_entropy(logits, targets, {.focal_gamma = gamma});
    EXPECT_EQ(sum.item<float>(), 0);
    const auto gradient = torch::autograd::grad({sum}, {logits})[0];
    EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << gamma;
    const auto labels = binary_cross_entropy(logits, torch::tensor({{1.0F, 0.0F}}),
                                             {.focal_gamma = gamma});
    EXPECT_EQ(labels.item<float>(), 0);
    const auto of_labels = torch::autograd::grad({labels}, {logits})[0];
    EXPECT_TRUE(of_labels.isfinite().all().item<bool>()) << gamma;
  }
}

TEST(Losses, FocalOfSharesIsThatOfTheClassWhereOneHasAll) {
  torch::manual_seed(2);
  const auto logits = torch::randn({5, 3});
  const auto targets = torch::tensor({0, 1, 2, 0, 1}, torch::kInt64);
  const CrossEntropyOptions options{.focal_gamma = 1.5,
                                    .class_weights = torch::tensor({1.0F, 2.0F, 0.5F})};
  const auto shares = torch::one_hot(targets, 3).to(torch::kFloat32);
  EXPECT_NEAR(cross_entropy(logits, shares, options).item<double>(),
              cross_entropy(logits, targets, options).item<double>(), 1e-5);
}

TEST(Losses, SumsAreInTheDtypeOfTheScores) {
  const auto logits = torch::zeros({2, 3}, torch::kFloat64);
  const auto weights = torch::ones({2});
  const auto mask = torch::ones({2}, torch::kBool);
  const auto classes = torch::zeros({2}, torch::kInt64);
  EXPECT_EQ(cross_entropy(logits, classes, {}, {mask, weights}).scalar_type(),
            torch::kFloat64);
  EXPECT_EQ(cross_entropy_weight(classes, {}, {mask, weights}).scalar_type(),
            torch::kFloat64);
  EXPECT_EQ(regression_loss(torch::zeros({2}), torch::zeros({2}, torch::kInt64), {})
                .scalar_type(),
            torch::kFloat32);
}

}  // namespace
}  // namespace lockstep::task
