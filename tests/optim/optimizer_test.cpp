// The contract of optim::Optimizer: every optimizer passes every test here.
#include "lockstep/optim/optimizer.h"

#include <ATen/Parallel.h>

#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/optim/clip.h"
#include "lockstep/optim/detail/fused.h"
#include "tests/support/oracle.h"

namespace lockstep::optim {
namespace {

struct Case {
  std::string name;
  config::OptimConfig config;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << c.name;
}

class OptimizerContract : public testing::TestWithParam<Case> {};

constexpr std::int64_t kCount = 1008;

// Gradients of very different sizes, so that no term hides another.
std::vector<torch::Tensor> some_gradients(int steps, torch::Dtype dtype) {
  torch::manual_seed(5);
  std::vector<torch::Tensor> gradients;
  for (int i = 0; i < steps; ++i) {
    gradients.push_back(
        (torch::randn({kCount}) * torch::logspace(-4, 1, kCount)).to(dtype));
  }
  return gradients;
}

struct Variant {
  torch::Dtype values = torch::kFloat32;
  torch::Dtype gradients = torch::kFloat32;
  std::vector<OptionRange> ranges = {};
  double gradient_scale = 1;
  double clip_norm = 0;
  double clip_value = 0;
};

std::string json_of(const config::OptimConfig& c, const Variant& variant) {
  std::string ranges;
  for (const auto& r : variant.ranges) {
    ranges += str(ranges.empty() ? "" : ", ", "[", r.begin, ", ", r.end, ", ",
                  r.lr_scale, ", ", r.weight_decay, "]");
  }
  return str(R"({"name": ")", config::name_of(c.name), R"(", "lr": )", c.lr,
             R"(, "momentum": )", c.momentum, R"(, "nesterov": )",
             c.nesterov ? "true" : "false", R"(, "beta1": )", c.beta1, R"(, "beta2": )",
             c.beta2, R"(, "eps": )", c.eps, R"(, "gradient_scale": )",
             variant.gradient_scale, R"(, "clip_norm": )", variant.clip_norm,
             R"(, "clip_value": )", variant.clip_value, R"(, "ranges": [)", ranges,
             "]}");
}

// Start, gradients and end of twenty steps.
checkpoint::NamedTensors twenty_steps(const config::OptimConfig& config,
                                      const Variant& variant) {
  const auto gradients = some_gradients(20, variant.gradients);
  auto values = torch::linspace(-2, 2, kCount).to(variant.values);
  const auto optimizer = make_optimizer(config, values, variant.ranges);
  const auto start = optimizer->weights(values).clone();
  SquaredNorm squared(gradients[0]);
  NormClip clip(variant.clip_norm, torch::kCPU);
  for (int i = 0; i < 20; ++i) {
    const auto& gradient = gradients[static_cast<std::size_t>(i)];
    clip.compute(squared.of(gradient), variant.gradient_scale);
    optimizer->step(values, gradient,
                    {.lr = config.lr * (1 - 0.03 * i),
                     .gradient_scale = variant.gradient_scale,
                     .factor = variant.clip_norm > 0 ? clip.factor() : torch::Tensor(),
                     .clip_value = variant.clip_value});
  }
  EXPECT_TRUE(values.equal(optimizer->weights(values).to(variant.values)));
  return {{"start", start},
          {"gradients", torch::stack(gradients)},
          {"end", optimizer->weights(values).clone()}};
}

std::vector<Variant> variants(const config::OptimConfig& config) {
  const std::vector<OptionRange> all{{0, kCount, 1, config.weight_decay}};
  return {
      {.ranges = all},
      {.ranges = {{0, 16, 1, 0}, {16, 528, 0.5, 0.1}, {528, kCount, 0.25, 0.3}}},
      {.ranges = all, .gradient_scale = 1.0 / 1024, .clip_norm = 0.05},
      {.ranges = all, .clip_norm = 3, .clip_value = 0.002},
      {.values = torch::kBFloat16, .gradients = torch::kBFloat16, .ranges = all},
      {.values = torch::kBFloat16, .gradients = torch::kFloat32, .ranges = all},
      {.values = torch::kFloat16,
       .gradients = torch::kFloat16,
       .ranges = all,
       .gradient_scale = 1.0 / 1024,
       .clip_norm = 0.05},
      {.values = torch::kFloat16, .gradients = torch::kFloat32, .ranges = all},
      {.values = torch::kFloat64, .gradients = torch::kFloat64, .ranges = all},
  };
}

// With ranges as parameter groups, scaled and clipped gradients, values of 16 bits
// and fp64.
TEST_P(OptimizerContract, EqualsPyTorchAfterTwentyStepsInEveryVariant) {
  LOCKSTEP_NEEDS_ORACLE();
  const auto& config = GetParam().config;
  checkpoint::NamedTensors tensors;
  std::string options;
  for (const auto& variant : variants(config)) {
    for (const auto& [name, tensor] : twenty_steps(config, variant)) {
      tensors.emplace_back(str(name, ".", tensors.size() / 3), tensor);
    }
    options += (options.empty() ? "[" : ", ") + json_of(config, variant);
  }
  const files::TemporaryDirectory folder;
  const auto file = folder.path() / "optim.safetensors";
  checkpoint::write_safetensors(file, tensors);
  test::expect_oracle_agrees("optim.py", {file.string(), options + "]"});
}

// Strategies cut the buffer where ranks meet; the result must not depend on it.
TEST_P(OptimizerContract, SlicesGiveTheSameBitsAsTheWhole) {
  torch::manual_seed(5);
  constexpr std::int64_t kLarge = 50'000, kCut = 12'336, kRest = kLarge - kCut;
  auto values = torch::linspace(-2, 2, kLarge);
  auto parts = values.clone();
  const auto on_whole = make_optimizer(GetParam().config, values);
  auto head = parts.narrow(0, 0, kCut);
  auto tail = parts.narrow(0, kCut, kRest);
  const auto on_head = make_optimizer(GetParam().config, head);
  const auto on_tail = make_optimizer(GetParam().config, tail);
  for (int i = 0; i < 5; ++i) {
    const auto gradient = torch::randn({kLarge});
    on_whole->step(values, gradient, 0.01);
    on_head->step(head, gradient.narrow(0, 0, kCut), 0.01);
    on_tail->step(tail, gradient.narrow(0, kCut, kRest), 0.01);
  }
  EXPECT_TRUE(values.equal(parts));
}

TEST_P(OptimizerContract, CutsOfRangesAndThreadsDoNotChangeABit) {
  constexpr std::int64_t kLarge = 100'003;
  const auto decay = GetParam().config.weight_decay;
  const auto run = [&](const std::vector<OptionRange>& ranges, int threads) {
    const int before = at::get_num_threads();
    at::set_num_threads(threads);
    torch::manual_seed(6);
    auto values = torch::randn({kLarge});
    const auto optimizer = make_optimizer(GetParam().config, values, ranges);
    for (int i = 0; i < 3; ++i) {
      optimizer->step(values, torch::randn({kLarge}), 0.01);
    }
    at::set_num_threads(before);
    return values;
  };
  const auto expected = run({{0, kLarge, 1, decay}}, 1);
  EXPECT_TRUE(expected.equal(run({{0, kLarge, 1, decay}}, 3)));
  // The second option changes nothing but keeps the ranges apart.
  EXPECT_TRUE(expected.equal(run({{0, 5, 1, decay},
                                  {5, 16, std::nextafter(1.0, 2.0), decay},
                                  {16, 4096, 1, decay},
                                  {4096, kLarge, 1, decay}},
                                 2)));
}

TEST_P(OptimizerContract, WhatNoRangeNamesIsLeftAlone) {
  auto values = torch::ones({kCount});
  const auto optimizer =
      make_optimizer(GetParam().config, values, {{16, 32, 1, 0.1}, {64, 80, 1, 0}});
  optimizer->step(values, torch::ones({kCount}), 0.1);
  const auto changed = values.ne(1);
  EXPECT_EQ(changed.sum().item<int>(), 32);
  EXPECT_TRUE(changed.narrow(0, 16, 16).all().item<bool>());
  EXPECT_TRUE(changed.narrow(0, 64, 16).all().item<bool>());
}

TEST_P(OptimizerContract, KernelsComputeWhatTheOperatorsDo) {
  const auto& config = GetParam().config;
  const bool sgd = config.name == config::Optimizer::sgd;
  const auto rule = config.name == config::Optimizer::adamw  ? kernels::Rule::adamw
                    : config.name == config::Optimizer::adam ? kernels::Rule::adam
                    : config.name == config::Optimizer::lion ? kernels::Rule::lion
                    : config.nesterov                        ? kernels::Rule::nesterov
                    : config.momentum > 0                    ? kernels::Rule::momentum
                                                             : kernels::Rule::sgd;
  const std::vector<OptionRange> ranges{{0, 500, 1, 0.1}, {500, kCount, 0.3, 0}};
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    auto values = torch::linspace(-2, 2, kCount).to(dtype);
    const auto optimizer = make_optimizer(config, values, ranges);
    detail::Buffers other{.weights = optimizer->weights(values).clone(),
                          .rounded = {},
                          .gradients = {},
                          .first = torch::zeros({kCount}),
                          .second = torch::zeros({kCount})};
    const auto gradients = some_gradients(5, dtype);
    for (int i = 0; i < 5; ++i) {
      other.gradients = gradients[static_cast<std::size_t>(i)];
      optimizer->step(values, other.gradients, {.lr = 0.01, .gradient_scale = 0.7});
      kernels::Hyper hyper{.lr = 0.01,
                           .beta1 = sgd ? config.momentum : config.beta1,
                           .beta2 = config.beta2,
                           .eps = config.eps,
                           .gradient_scale = 0.7};
      if (rule == kernels::Rule::adam || rule == kernels::Rule::adamw) {
        hyper.bias1 = 1 - std::pow(config.beta1, i + 1);
        hyper.bias2 = 1 - std::pow(config.beta2, i + 1);
      }
      detail::update_by_operators({.rule = rule,
                                   .hyper = hyper,
                                   .ranges = ranges,
                                   .factor = {},
                                   .buffers = other});
    }
    // LibTorch's root of a CPU is off by a last bit now and then.
    const bool roots = rule == kernels::Rule::adam || rule == kernels::Rule::adamw;
    const double allowed = roots ? 1e-6 : 0;
    EXPECT_TRUE(optimizer->weights(values).allclose(other.weights, allowed, allowed))
        << dtype;
  }
}

TEST_P(OptimizerContract, ZeroGradientsWithoutDecayChangeNothing) {
  auto config = GetParam().config;
  config.weight_decay = 0;
  auto values = torch::linspace(-2, 2, 1000);
  const auto before = values.clone();
  const auto gradient = torch::zeros({1000});
  const auto optimizer = make_optimizer(config, values);
  for (int i = 0; i < 3; ++i) optimizer->step(values, gradient, 0.1);
  EXPECT_TRUE(values.equal(before));
}

TEST_P(OptimizerContract, WhatIsNoNumberIsNotHidden) {
  auto values = torch::ones({64});
  auto gradient = torch::ones({64});
  gradient[3] = std::nanf("");
  const auto optimizer = make_optimizer(GetParam().config, values);
  optimizer->step(values, gradient, {.lr = 0.1, .clip_value = 0.5});
  EXPECT_EQ(values.isnan().sum().item<int>(), 1);
  EXPECT_TRUE(values[3].isnan().item<bool>());
}

TEST_P(OptimizerContract, ACopyLoadedFromTheStateContinuesToTheBit) {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    const auto gradients = some_gradients(6, dtype);
    auto values = torch::linspace(-2, 2, kCount).to(dtype);
    const auto first = make_optimizer(GetParam().config, values);
    for (std::size_t i = 0; i < 3; ++i) first->step(values, gradients[i], 0.01);
    NamedTensors saved;
    for (const auto& [name, tensor] : first->state()) {
      saved.emplace_back(name, tensor.clone());
    }
    auto other = values.clone();
    const auto second = make_optimizer(GetParam().config, other);
    second->load(saved);
    for (std::size_t i = 3; i < 6; ++i) {
      first->step(values, gradients[i], 0.01);
      second->step(other, gradients[i], 0.01);
    }
    EXPECT_TRUE(values.equal(other)) << dtype;
  }
}

// Which of three pieces, each with its own decay, take part in a step.
constexpr std::int64_t kPiece = kCount / 3;
bool is_used(std::int64_t piece, std::size_t step) {
  return piece == 0 || (piece == 1 ? step % 2 == 1 : step > 2);
}
std::vector<Elements> unused_in(std::size_t step) {
  std::vector<Elements> unused;
  for (const std::int64_t piece : {1, 2}) {
    if (!is_used(piece, step)) {
      unused.push_back({piece * kPiece, (piece + 1) * kPiece});
    }
  }
  return unused;
}
const std::vector<OptionRange> kPieces{
    {0, kPiece, 1, 0.1}, {kPiece, 2 * kPiece, 0.5, 0.2}, {2 * kPiece, kCount, 1, 0}};

// PyTorch counts the steps of every parameter, and leaves those without a gradient
// alone.
TEST_P(OptimizerContract, WhatIsUnusedHasTheBitsOfAnOptimizerThatWasNotAsked) {
  for (const auto dtype :
       {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16}) {
    const auto gradients = some_gradients(9, dtype);
    auto values = torch::linspace(-2, 2, kCount).to(dtype);
    auto apart = values.clone();
    const auto whole = make_optimizer(GetParam().config, values, kPieces);
    std::vector<std::unique_ptr<Optimizer>> alone;
    for (const auto& range : kPieces) {
      alone.push_back(
          make_optimizer(GetParam().config, apart.narrow(0, range.begin, kPiece),
                         {{0, kPiece, range.lr_scale, range.weight_decay}}));
    }
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      whole->step(values, gradients[i], {.lr = 0.01, .unused = unused_in(i)});
      for (std::int64_t piece = 0; piece < 3; ++piece) {
        if (!is_used(piece, i)) continue;
        auto part = apart.narrow(0, piece * kPiece, kPiece);
        alone[static_cast<std::size_t>(piece)]->step(
            part, gradients[i].narrow(0, piece * kPiece, kPiece), 0.01);
      }
      ASSERT_TRUE(values.equal(apart)) << dtype << " step " << i;
    }
  }
}

TEST_P(OptimizerContract, ACopyKnowsWhichElementsWereUnused) {
  const auto gradients = some_gradients(8, torch::kFloat32);
  auto values = torch::linspace(-2, 2, kCount);
  const auto first = make_optimizer(GetParam().config, values, kPieces);
  for (std::size_t i = 0; i < 4; ++i) {
    first->step(values, gradients[i], {.lr = 0.01, .unused = unused_in(i)});
  }
  NamedTensors saved;
  for (const auto& [name, tensor] : first->state()) {
    saved.emplace_back(name, tensor.clone());
  }
  auto other = values.clone();
  const auto second = make_optimizer(GetParam().config, other, kPieces);
  second->load(saved);
  EXPECT_EQ(second->behind(), first->behind());
  for (std::size_t i = 4; i < 8; ++i) {
    first->step(values, gradients[i], {.lr = 0.01, .unused = unused_in(i)});
    second->step(other, gradients[i], {.lr = 0.01, .unused = unused_in(i)});
  }
  EXPECT_TRUE(values.equal(other));
}

TEST_P(OptimizerContract, GpuStepsWithUnusedElementsEqualTheCpusToTheBit) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const auto gradients = some_gradients(9, torch::kFloat32);
  auto values = torch::linspace(-2, 2, kCount);
  auto on_gpu = values.cuda();
  const auto here = make_optimizer(GetParam().config, values, kPieces);
  const auto there = make_optimizer(GetParam().config, on_gpu, kPieces);
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    here->step(values, gradients[i], {.lr = 0.01, .unused = unused_in(i)});
    there->step(on_gpu, gradients[i].cuda(), {.lr = 0.01, .unused = unused_in(i)});
  }
  EXPECT_TRUE(on_gpu.cpu().equal(values));
}

TEST(Optimizer, SparseGradientsAreRefusedInWords) {
  auto values = torch::ones({8});
  const auto optimizer = make_optimizer({}, values);
  EXPECT_THAT(test::error_text(
                  Fault::config,
                  [&] { optimizer->step(values, torch::ones({8}).to_sparse(), 0.1); }),
              testing::HasSubstr("to_dense()"));
}

// As a CUDA graph replays it: the numbers are read when it runs, and a step that is
// skipped has not been.
TEST_P(OptimizerContract, AStepInPartsHasTheBitsOfAStep) {
  for (const auto dtype : {torch::kFloat32, torch::kBFloat16, torch::kFloat16}) {
    const auto gradients = some_gradients(6, dtype);
    auto whole = torch::linspace(-1, 1, kCount).to(dtype), parts = whole.clone();
    const auto one = make_optimizer(GetParam().config, whole);
    const auto other = make_optimizer(GetParam().config, parts);
    double factor = 0.5, skip = 0;
    for (int i = 0; i < 6; ++i) {
      const auto at = static_cast<std::size_t>(i);
      const StepArguments arguments{.lr = 0.1 / (1 + i), .gradient_scale = 0.25};
      const auto ahead = other->hypers(arguments, 1);
      const auto hypers = other->hypers(arguments, 0);
      skip = i == 3 ? 1 : 0;
      other->launch(parts, gradients[at],
                    {.hypers = hypers.data(), .factor = &factor, .skip = &skip});
      if (i == 3) continue;
      other->count_step();
      const auto now = other->hypers(arguments, 0);
      ASSERT_EQ(ahead.size(), now.size());
      EXPECT_EQ(ahead[0].bias1, now[0].bias1) << "one later";
      auto by_hand = arguments;
      by_hand.factor = torch::tensor(factor, torch::kFloat64);
      one->step(whole, gradients[at], by_hand);
      EXPECT_TRUE(parts.equal(whole)) << i;
    }
    const auto want = one->state(), got = other->state();
    ASSERT_EQ(want.size(), got.size());
    for (std::size_t s = 0; s < want.size(); ++s) {
      EXPECT_TRUE(got[s].second.equal(want[s].second)) << want[s].first;
    }
  }
}

TEST_P(OptimizerContract, AnEmptyBufferIsFine) {
  auto values = torch::empty({0});
  const auto optimizer = make_optimizer(GetParam().config, values);
  optimizer->step(values, torch::empty({0}), 0.1);
}

TEST_P(OptimizerContract, GpuStepsEqualTheCpusToTheBit) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  constexpr std::int64_t kLarge = 20'011;
  const std::vector<OptionRange> ranges{{0, 16, 1, 0},
                                        {16, 5'000, 0.5, 0.1},
                                        {5'000, 5'003, 1, 0},
                                        {5'003, kLarge, 1, 0.2}};
  for (const auto dtype :
       {torch::kFloat32, torch::kFloat64, torch::kBFloat16, torch::kFloat16}) {
    torch::manual_seed(4);
    auto values = torch::randn({kLarge}).to(dtype);
    auto on_gpu = values.cuda();
    const auto here = make_optimizer(GetParam().config, values, ranges);
    const auto there = make_optimizer(GetParam().config, on_gpu, ranges);
    auto factor = torch::tensor(0.25, torch::kFloat64);
    for (int i = 0; i < 5; ++i) {
      const auto gradient = torch::randn({kLarge}).to(dtype);
      StepArguments arguments{
          .lr = 0.01, .gradient_scale = 3, .factor = factor, .clip_value = 0.9};
      here->step(values, gradient, arguments);
      arguments.factor = factor.cuda();
      there->step(on_gpu, gradient.cuda(), arguments);
    }
    EXPECT_TRUE(on_gpu.cpu().equal(values)) << dtype;
    for (std::size_t i = 0; i < here->state().size(); ++i) {
      EXPECT_TRUE(there->state()[i].second.cpu().equal(here->state()[i].second))
          << here->state()[i].first;
    }
  }
}

config::OptimConfig options(config::Optimizer name, double weight_decay,
                            double momentum = 0.9, bool nesterov = false) {
  config::OptimConfig config;
  config.name = name;
  config.lr = 0.01;
  config.weight_decay = weight_decay;
  config.momentum = momentum;
  config.nesterov = nesterov;
  return config;
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, OptimizerContract,
    testing::Values(Case{"adamw", options(config::Optimizer::adamw, 0.1)},
                    Case{"adam", options(config::Optimizer::adam, 0.1)},
                    Case{"adam_without_decay", options(config::Optimizer::adam, 0)},
                    Case{"sgd", options(config::Optimizer::sgd, 0.1)},
                    Case{"nesterov", options(config::Optimizer::sgd, 0.1, 0.9, true)},
                    Case{"plain_sgd", options(config::Optimizer::sgd, 0, 0)},
                    Case{"lion", options(config::Optimizer::lion, 0.1)}),
    [](const auto& instance) { return instance.param.name; });

TEST(Optimizer, StateOfAnotherOptimizerIsRefused) {
  auto values = torch::ones({16});
  const auto adam = make_optimizer(options(config::Optimizer::adamw, 0), values);
  const auto sgd = make_optimizer(options(config::Optimizer::sgd, 0), values);
  EXPECT_THAT(test::error_text(Fault::config, [&] { adam->load(sgd->state()); }),
              testing::HasSubstr("has no 'mean'"));
  EXPECT_THAT(test::error_text(Fault::config, [&] { sgd->load(adam->state()); }),
              testing::HasSubstr("has no 'momentum'"));
  auto longer = torch::ones({32});
  const auto other = make_optimizer(options(config::Optimizer::adamw, 0), longer);
  EXPECT_THAT(test::error_text(Fault::config, [&] { adam->load(other->state()); }),
              testing::HasSubstr("'mean' has the shape [32], not [16]"));
}

TEST(Optimizer, NewValuesReachTheFp32CopiesByRefresh) {
  auto values = torch::ones({16}, torch::kBFloat16);
  const auto optimizer = make_optimizer(options(config::Optimizer::sgd, 0), values);
  values.fill_(4);
  optimizer->refresh(values);
  optimizer->step(values, torch::zeros({16}, torch::kBFloat16), 0.1);
  EXPECT_TRUE(values.eq(4).all().item<bool>());
}

// 1 - 2^-10 is no bf16: only the copy can add up steps that are smaller than a bit.
TEST(Optimizer, StepsBelowABitOfBf16AddUp) {
  auto values = torch::ones({16}, torch::kBFloat16);
  const auto optimizer = make_optimizer(options(config::Optimizer::sgd, 0, 0), values);
  const auto gradient = torch::ones({16}, torch::kBFloat16);
  for (int i = 0; i < 16; ++i) optimizer->step(values, gradient, 1.0 / 1024);
  EXPECT_TRUE(values.eq(1 - 16.0 / 1024).all().item<bool>());
}

TEST(Optimizer, MovedOptionsActAtTheNextStep) {
  auto values = torch::ones({32});
  const auto optimizer = make_optimizer(options(config::Optimizer::sgd, 0, 0), values,
                                        {{0, 16, 1, 0}, {16, 32, 0, 0}});
  const auto gradient = torch::ones({32});
  optimizer->step(values, gradient, 0.5);
  EXPECT_EQ(values[0].item<float>(), 0.5F);
  EXPECT_EQ(values[31].item<float>(), 1);
  optimizer->set_options({{0, 16, 0, 0}, {16, 32, 1, 0}});
  optimizer->step(values, gradient, 0.5);
  EXPECT_EQ(values[0].item<float>(), 0.5F);
  EXPECT_EQ(values[31].item<float>(), 0.5F);
}

TEST(Optimizer, RangesThatOverlapAreOurBug) {
  auto values = torch::ones({32});
  const auto config = options(config::Optimizer::sgd, 0);
  test::error_text(Fault::internal, [&] {
    make_optimizer(config, values, {{0, 17, 1, 0}, {16, 32, 1, 0}});
  });
  test::error_text(Fault::internal, [&] {
    make_optimizer(config, values, {{0, 33, 1, 0}});
  });
}

}  // namespace
}  // namespace lockstep::optim
