#include "lockstep/models/recompute.h"

#include <ATen/autocast_mode.h>

#include "lockstep/models/dropout.h"
#include "lockstep/models/model.h"
#include "tests/support/support.h"

namespace lockstep::models {
namespace {

using torch::Tensor;

struct DropBlock : torch::nn::Module {
  DropBlock() {
    linear = register_module("linear", torch::nn::Linear(16, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    dropout = register_module("dropout", Dropout(0.3));
  }
  Tensor forward(const Tensor& x) {
    calls += 1;
    return dropout(norm(linear(x)).relu());
  }
  torch::nn::Linear linear{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  Dropout dropout{nullptr};
  int calls = 0;
};

struct Seen {
  Tensor loss, of_input;
  std::vector<Tensor> gradients, buffers;
  Tensor next;  // what is drawn afterwards
};

// Two calls of one block and one of another; the last draw shows where generators are.
Seen train_once(bool recomputes, bool by_sample) {
  torch::manual_seed(3);
  DropBlock first, second;
  if (by_sample) {
    draw_by_sample(first, 5)->begin(0, 0, 8);
    draw_by_sample(second, 6)->begin(0, 0, 8);
  }
  const auto run = [&](DropBlock& block, const Tensor& x) {
    const auto compute = [&block](const Tensor& y) { return block.forward(y); };
    return recomputes ? recomputed(block, compute, x) : compute(x);
  };
  const auto x = torch::randn({8, 16}).requires_grad_(true);
  const auto y = run(first, run(second, run(first, x)));
  Seen seen;
  const auto loss = y.square().sum();
  loss.backward();
  seen.loss = loss.detach();
  seen.of_input = x.grad();
  for (auto* block : {&first, &second}) {
    for (const auto& p : block->parameters()) seen.gradients.push_back(p.grad());
    for (const auto& b : block->buffers()) seen.buffers.push_back(b);
    EXPECT_EQ(block->calls, (block == &first ? 2 : 1) * (recomputes ? 2 : 1));
  }
  seen.next = first.dropout(torch::ones({64}));
  return seen;
}

TEST(Recompute, HasTheSameBitsWithDropoutBuffersAndABlockUsedTwice) {
  for (const bool by_sample : {false, true}) {
    const auto kept = train_once(false, by_sample);
    const auto again = train_once(true, by_sample);
    EXPECT_TRUE(torch::equal(kept.loss, again.loss));
    EXPECT_TRUE(torch::equal(kept.of_input, again.of_input));
    ASSERT_EQ(kept.gradients.size(), again.gradients.size());
    for (std::size_t i = 0; i < kept.gradients.size(); ++i) {
      EXPECT_TRUE(torch::equal(kept.gradients[i], again.gradients[i])) << i;
    }
    for (std::size_t i = 0; i < kept.buffers.size(); ++i) {
      EXPECT_TRUE(torch::equal(kept.buffers[i], again.buffers[i])) << i;
    }
    EXPECT_TRUE(torch::equal(kept.next, again.next)) << "generators stand elsewhere";
  }
}

TEST(Recompute, AnInputWithoutAGradientAndAFrozenParameterAreFine) {
  torch::manual_seed(1);
  DropBlock block;
  block.linear->bias.set_requires_grad(false);
  const auto y = recomputed(
      block, [&](const Tensor& x) { return block.forward(x); }, torch::randn({4, 16}));
  y.sum().backward();
  EXPECT_TRUE(block.linear->weight.grad().defined());
  EXPECT_FALSE(block.linear->bias.grad().defined());
}

// A layer that stands in the block under two names, as tied weights do.
TEST(Recompute, ATiedParameterHasItsGradientOnce) {
  struct Tied : torch::nn::Module {
    torch::nn::Linear first = register_module("first", torch::nn::Linear(3, 3));
    torch::nn::Linear second = register_module("second", first);
  };
  const auto gradient = [](bool again) {
    torch::manual_seed(1);
    Tied block;
    const auto compute = [&](const Tensor& x) {
      return block.second(torch::tanh(block.first(x)));
    };
    const auto x = torch::randn({4, 3});
    const auto y = again ? recomputed(block, compute, x) : compute(x);
    y.square().sum().backward();
    return block.first->weight.grad();
  };
  EXPECT_TRUE(torch::equal(gradient(false), gradient(true)));
}

// In a block of experts, for instance, of which none has a sample.
TEST(Recompute, ABlockThatUsesNoParameterThisTimeLeavesThemWithoutAGradient) {
  torch::nn::Linear unused(3, 3), head(3, 1);
  const auto x = torch::randn({4, 3});
  const auto y = recomputed(
      *unused, [](const Tensor& input) { return input * 2; }, x);
  head(y).sum().backward();
  EXPECT_FALSE(unused->weight.grad().defined());
  EXPECT_TRUE(head->weight.grad().defined());
}

TEST(Recompute, WithoutGradientsNothingIsComputedTwice) {
  DropBlock block;
  const torch::NoGradGuard no_grad;
  recomputed(
      block, [&](const Tensor& x) { return block.forward(x); }, torch::randn({4, 16}));
  EXPECT_EQ(block.calls, 1);
}

// Autocast is on in forward only; what is computed again must not be in float32.
TEST(Recompute, AutocastIsThatOfTheForwardPass) {
  DropBlock block;
  std::vector<torch::Dtype> seen;
  const auto compute = [&](const Tensor& x) {
    auto y = block.linear(x);
    seen.push_back(y.scalar_type());
    return y;
  };
  Tensor y;
  at::autocast::set_autocast_enabled(torch::kCPU, true);
  at::autocast::set_autocast_dtype(torch::kCPU, torch::kBFloat16);
  y = recomputed(block, compute, torch::randn({4, 16}));
  at::autocast::clear_cache();
  at::autocast::set_autocast_enabled(torch::kCPU, false);
  y.to(torch::kFloat32).sum().backward();
  EXPECT_THAT(seen, testing::ElementsAre(torch::kBFloat16, torch::kBFloat16));
}

TEST(Recompute, EveryNthBlockOfAModelIsComputedAgainAndTheResultStays) {
  const auto gradients = [](int every) {
    torch::manual_seed(2);
    const auto net = build({.name = "resnet9"}, {{1, 8, 8}, 3});
    net->recompute_every(every);
    const auto x = torch::randn({4, 1, 8, 8});
    net->forward(x).square().sum().backward();
    std::vector<Tensor> all;
    for (const auto& p : net->parameters()) all.push_back(p.grad());
    for (const auto& b : net->buffers()) all.push_back(b);
    return all;
  };
  const auto kept = gradients(0);
  for (const int every : {1, 2, 4}) {
    const auto again = gradients(every);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      EXPECT_TRUE(torch::equal(kept[i], again[i])) << i << ", every " << every;
    }
  }
}

}  // namespace
}  // namespace lockstep::models
