// The pass that is written out against autograd's of the same model.
#include "lockstep/models/gpt_pass.h"

#include <map>
#include <random>
#include <set>

#include "lockstep/models/model.h"
#include "tests/support/support.h"

namespace lockstep::models {
namespace {

using testing::HasSubstr;
using torch::Tensor;

struct GptSize {
  std::int64_t vocabulary, length, hidden, layers, heads, multiple;
};

std::shared_ptr<Model> own_gpt(const GptSize& size, double dropout = 0) {
  torch::manual_seed(11);
  auto model = build({.name = "gpt",
                      .hidden = size.hidden,
                      .layers = size.layers,
                      .heads = size.heads,
                      .pad_vocabulary = size.multiple,
                      .dropout = dropout,
                      .own_backward = config::Auto<bool>(true)},
                     {{size.length}, size.vocabulary});
  const torch::NoGradGuard no_grad;
  // Not as they begin: norms of 1 and biases of 0 hide mistakes.
  for (auto& p : model->parameters()) p.add_(torch::randn_like(p), 0.05);
  return model;
}

// Gradients in memory of their own, which begins as garbage.
class KeptSink : public GradientSink {
 public:
  Destination destination_of(const Tensor& parameter) override {
    auto& place = places_[parameter.unsafeGetTensorImpl()];
    if (place.defined()) return {place, adds_};
    if (!parameter.requires_grad()) return {};
    place = torch::full_like(parameter, NAN, torch::MemoryFormat::Contiguous).detach();
    return {place, adds_};
  }
  void ready(const Tensor& parameter) override {
    EXPECT_TRUE(ready_.insert(parameter.unsafeGetTensorImpl()).second);
  }
  void add_from_now_on() {
    adds_ = true;
    ready_.clear();
  }
  Tensor of(const Tensor& parameter) const {
    return places_.at(parameter.unsafeGetTensorImpl());
  }
  bool is_ready(const Tensor& parameter) const {
    return ready_.count(parameter.unsafeGetTensorImpl()) > 0;
  }

 private:
  std::map<c10::TensorImpl*, Tensor> places_;
  std::set<c10::TensorImpl*> ready_;
  bool adds_ = false;
};

struct TokenBatch {
  Tensor tokens, targets;
};

TokenBatch draw_tokens(const GptSize& size, const torch::Device& device) {
  const auto draw = [&] {
    return torch::randint(size.vocabulary, {3, size.length}, torch::kInt64).to(device);
  };
  return {draw(), draw()};
}

Tensor loss_of(const Tensor& logits, const Tensor& targets) {
  return torch::cross_entropy_loss(logits.flatten(0, 1), targets.flatten());
}

void run_own(Model& model, const TokenBatch& batch, GradientSink& sink) {
  auto& own = *model.own_backward();
  const auto logits = own.forward_kept({{"input", batch.tokens}}).at("output").detach();
  const auto leaf = logits.clone().requires_grad_();
  loss_of(leaf, batch.targets).backward();
  own.backward({{"output", leaf.grad()}}, sink);
}

double distance(const Tensor& is, const Tensor& wanted) {
  return ((is - wanted).norm() / (wanted.norm() + 1e-12)).item<double>();
}

void expect_autograds(const GptSize& size, const torch::Device& device) {
  const auto model = own_gpt(size);
  model->to(device);
  const auto batch = draw_tokens(size, device);
  const auto logits = model->forward(batch.tokens);
  loss_of(logits, batch.targets).backward();
  KeptSink sink;
  const auto own =
      model->own_backward()->forward_kept({{"input", batch.tokens}}).at("output");
  EXPECT_LT(distance(own, logits), 1e-4);
  run_own(*model, batch, sink);
  for (const auto& item : model->named_parameters()) {
    const auto& p = item.value();
    // The promise; sums in another order differ by about 1e-6.
    EXPECT_LT(distance(sink.of(p), p.grad()), 1e-4) << item.key();
    EXPECT_TRUE(sink.is_ready(p)) << item.key();
  }
  sink.add_from_now_on();
  run_own(*model, batch, sink);
  for (const auto& item : model->named_parameters()) {
    const auto& p = item.value();
    EXPECT_LT(distance(sink.of(p), 2 * p.grad()), 1e-4) << item.key();
  }
}

const GptSize kGptSizes[] = {
    {97, 17, 48, 3, 4, 8}, {31, 5, 20, 1, 2, 1}, {64, 33, 72, 2, 3, 64}};

}  // namespace

TEST(GptPass, GradientsAreAutogradsAndAddUp) {
  for (const auto& size : kGptSizes) expect_autograds(size, torch::kCPU);
}

TEST(GptPass, GradientsAreAutogradsOnAGpu) {
  if (!torch::cuda::is_available() || !kernels::gemms_available()) {
    GTEST_SKIP() << "no GPU, or no kernels of ours";
  }
  at::globalContext().setFloat32MatmulPrecision("highest");
  expect_autograds({97, 17, 48, 3, 4, 8}, torch::Device(torch::kCUDA, 0));
  expect_autograds({1000, 256, 768, 2, 12, 64}, torch::Device(torch::kCUDA, 0));
}

TEST(GptPass, ItsOwnLossIsThatOfTheLogits) {
  const GptSize size{97, 17, 48, 2, 4, 8};
  const auto model = own_gpt(size);
  auto batch = draw_tokens(size, torch::kCPU);
  batch.targets.index_put_({1, 3}, -100);  // a token that does not count
  const auto named = model->named_parameters();
  GptPass pass(gpt_parameters(*model), size.heads, size.vocabulary);
  pass.forward(batch.tokens, {});
  const auto counted = static_cast<double>(batch.targets.numel() - 1);
  const auto losses =
      pass.cross_entropy(batch.targets.flatten(), {.scale = 1 / counted}).clone();
  KeptSink sink;
  pass.backward(sink);
  const auto wanted = loss_of(model->forward(batch.tokens), batch.targets);
  wanted.backward();
  EXPECT_NEAR(losses.sum().item<double>() / counted, wanted.item<double>(), 1e-5);
  for (const auto& item : named) {
    EXPECT_LT(distance(sink.of(item.value()), item.value().grad()), 1e-4) << item.key();
  }
}

TEST(GptPass, FrozenParametersGetNoGradient) {
  const GptSize size{97, 17, 48, 2, 4, 8};
  const auto model = own_gpt(size);
  const auto named = model->named_parameters();
  for (const auto* name : {"wpe.weight", "h.0.attn.c_attn.bias", "h.1.ln_2.weight",
                           "h.1.mlp.c_proj.weight", "ln_f.bias"}) {
    named[name].set_requires_grad(false);
  }
  const auto batch = draw_tokens(size, torch::kCPU);
  loss_of(model->forward(batch.tokens), batch.targets).backward();
  KeptSink sink;
  run_own(*model, batch, sink);
  for (const auto& item : named) {
    EXPECT_EQ(sink.is_ready(item.value()), item.value().requires_grad()) << item.key();
    if (!item.value().requires_grad()) continue;
    EXPECT_LT(distance(sink.of(item.value()), item.value().grad()), 1e-4) << item.key();
  }
}

TEST(GptPass, BatchesOfAnotherShapeMakeANewPlan) {
  const GptSize size{97, 17, 48, 2, 4, 8};
  const auto model = own_gpt(size);
  const auto all = draw_tokens(size, torch::kCPU);
  for (const auto& [rows, length] : {std::pair{3, 17}, {2, 9}, {3, 17}}) {
    const auto tokens = all.tokens.slice(0, 0, rows).slice(1, 0, length);
    const auto own = model->own_backward()->forward_kept({{"input", tokens}});
    EXPECT_LT(distance(own.at("output"), model->forward(tokens)), 1e-4);
  }
}

TEST(GptPass, WhatItDoesNotHaveIsRefused) {
  EXPECT_THAT(test::error_text(Fault::config,
                               [] {
                                 own_gpt({9, 5, 8, 1, 2, 1}, 0.1);
                               }),
              HasSubstr("model.own_backward: the gpt's has no dropout, but "
                        "model.dropout is 0.1"));
  const auto model = own_gpt({9, 5, 8, 1, 2, 1});
  EXPECT_THAT(test::error_text(Fault::config,
                               [&] {
                                 model->own_backward()->forward_kept(
                                     {{"input", torch::zeros({1, 6}, torch::kInt64)}});
                               }),
              HasSubstr("a sequence has 6 tokens, the model was built for 5"));
}

TEST(Arena, BuffersThatMeetInTimeDoNotMeetInSpace) {
  Arena arena;
  auto generator = std::mt19937(4);
  for (int i = 0; i < 60; ++i) {
    const int first = static_cast<int>(generator() % 50);
    const int last = first + static_cast<int>(generator() % 20);
    arena.add({"b", static_cast<std::int64_t>(generator() % 100'000), first, last});
  }
  arena.place();
  std::int64_t most = 0;
  for (int moment = 0; moment < 70; ++moment) {
    std::int64_t needed = 0;
    for (const auto& a : arena.buffers()) {
      if (a.first <= moment && moment <= a.last) needed += a.bytes;
    }
    most = std::max(most, needed);
  }
  for (const auto& a : arena.buffers()) {
    EXPECT_GE(a.offset, 0);
    EXPECT_LE(a.offset + a.bytes, arena.bytes());
    for (const auto& b : arena.buffers()) {
      if (&a == &b || a.last < b.first || b.last < a.first) continue;
      EXPECT_TRUE(a.offset + a.bytes <= b.offset || b.offset + b.bytes <= a.offset);
    }
  }
  EXPECT_GE(arena.bytes(), most);
  EXPECT_LT(arena.bytes(), arena.sum());
}

}  // namespace lockstep::models
