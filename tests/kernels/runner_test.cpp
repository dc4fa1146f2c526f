// The kernels of a hand-written pass against LibTorch's operators in double, over odd
// sizes, on the host and on a GPU.
#include "lockstep/kernels/runner.h"

#include <torch/torch.h>

#include "tests/support/support.h"

namespace lockstep::kernels {

using torch::Tensor;

struct RunnerPlace {
  torch::Device device = torch::kCPU;
  torch::Dtype dtype = torch::kFloat32;
};

class RunnerTest : public ::testing::TestWithParam<RunnerPlace> {
 protected:
  void SetUp() override {
    if (GetParam().device.is_cuda() &&
        !(torch::cuda::is_available() && cuda_available())) {
      GTEST_SKIP() << "no GPU, or no device code of ours";
    }
    torch::manual_seed(5);
  }
  Tensor draw(c10::IntArrayRef sizes) const {
    return torch::randn(sizes).to(GetParam().device, GetParam().dtype);
  }
  Tensor numbers(c10::IntArrayRef sizes, torch::Dtype dtype) const {
    return torch::zeros(sizes, torch::dtype(dtype).device(GetParam().device));
  }
  Number number() const {
    return GetParam().dtype == torch::kBFloat16 ? Number::bf16 : Number::f32;
  }
  Runner run() const { return Runner(GetParam().device); }
  float* workspace(std::int64_t count) {
    workspace_ = torch::full({count}, NAN, torch::device(GetParam().device));
    return workspace_.mutable_data_ptr<float>();
  }
  void expect_near(const Tensor& is, const Tensor& wanted) const {
    // bf16 rounds by up to 2^-9 of a number; sums in float lose a few bits of 24.
    const double limit = GetParam().dtype == torch::kBFloat16 ? 6e-3 : 2e-5;
    const auto got = is.to(torch::kCPU, torch::kFloat64), want = wanted.to(torch::kCPU);
    const auto error = (got - want).norm() / (want.norm() + 1e-12);
    EXPECT_LT(error.item<double>(), limit) << is.sizes();
  }

 private:
  Tensor workspace_;
};

namespace {

Tensor wide(const Tensor& x) {
  return x.to(torch::kFloat64);
}

constexpr std::pair<int, int> kSizes[] = {{1, 3},    {3, 5},    {7, 64},    {33, 100},
                                          {65, 768}, {17, 999}, {40, 1024}, {9, 1601},
                                          {5, 4096}, {2, 2050}, {700, 48}};

}  // namespace

INSTANTIATE_TEST_SUITE_P(
    Places, RunnerTest,
    ::testing::Values(RunnerPlace{torch::kCPU, torch::kFloat32},
                      RunnerPlace{torch::kCPU, torch::kBFloat16},
                      RunnerPlace{torch::Device(torch::kCUDA, 0), torch::kFloat32},
                      RunnerPlace{torch::Device(torch::kCUDA, 0), torch::kBFloat16}),
    [](const auto& place) {
      return str(place.param.device.is_cpu() ? "cpu" : "cuda",
                 place.param.dtype == torch::kBFloat16 ? "_bf16" : "_f32");
    });

TEST_P(RunnerTest, LayerNormsAndTheSumBeforeThem) {
  for (const auto& [rows, width] : kSizes) {
    for (const bool adds : {false, true}) {
      const auto in = draw({rows, width}), added = draw({rows, width});
      const auto weight = draw({width}), bias = draw({width});
      const auto out = torch::empty_like(in), sum = torch::empty_like(in);
      const auto statistics = numbers({2, rows}, torch::kFloat32);
      run()(LayerNorm{.out = out.mutable_data_ptr(),
                      .in = in.const_data_ptr(),
                      .added = adds ? added.const_data_ptr() : nullptr,
                      .sum = adds ? sum.mutable_data_ptr() : nullptr,
                      .weight = weight.const_data_ptr(),
                      .bias = bias.const_data_ptr(),
                      .mean = statistics[0].mutable_data_ptr<float>(),
                      .inverse = statistics[1].mutable_data_ptr<float>(),
                      .number = number(),
                      .rows = rows,
                      .width = width});
      if (adds) expect_near(sum, wide(in) + wide(added));
      const auto normalised = adds ? sum : in;
      expect_near(
          out, torch::layer_norm(wide(normalised), {width}, wide(weight), wide(bias)));
      expect_near(statistics[0], wide(normalised).mean(1));
    }
  }
}

TEST_P(RunnerTest, GradientsOfLayerNormsJoinThoseAroundThem) {
  for (const auto& [rows, width] : kSizes) {
    for (const bool adds : {false, true}) {
      const auto x = draw({rows, width}), gradient = draw({rows, width});
      const auto weight = draw({width});
      auto out = draw({rows, width});  // and what goes around, in place
      auto sums = draw({3, width});
      const auto wide_x = wide(x).requires_grad_(), w = wide(weight).requires_grad_();
      const auto b = torch::zeros_like(w).requires_grad_();
      torch::layer_norm(wide_x, {width}, w, b).backward(wide(gradient));
      const auto total = adds ? wide_x.grad() + wide(out) : wide_x.grad();
      auto wanted = torch::stack({w.grad(), b.grad(), total.sum(0)});
      if (adds) wanted = wanted + wide(sums);
      const auto mean = wide(x).mean(1).to(torch::kFloat32);
      const auto inverse = (wide(x).var(1, false) + 1e-5).rsqrt().to(torch::kFloat32);
      run()(LayerNormBackward{.out = out.mutable_data_ptr(),
                              .gradient = gradient.const_data_ptr(),
                              .through = adds ? out.const_data_ptr() : nullptr,
                              .in = x.const_data_ptr(),
                              .weight = weight.const_data_ptr(),
                              .mean = mean.const_data_ptr<float>(),
                              .inverse = inverse.const_data_ptr<float>(),
                              .weight_gradient = {sums[0].mutable_data_ptr(), adds},
                              .bias_gradient = {sums[1].mutable_data_ptr(), adds},
                              .out_sums = {sums[2].mutable_data_ptr(), adds},
                              .workspace = workspace(layer_norm_workspace(width)),
                              .number = number(),
                              .rows = rows,
                              .width = width});
      expect_near(out, total);
      expect_near(sums[0], wanted[0]);
      expect_near(sums[1], wanted[1]);
      // These cancel out without what goes around.
      if (adds) expect_near(sums[2], wanted[2]);
    }
  }
}

TEST_P(RunnerTest, GeluAndItsGradientAreOfTheTanhForm) {
  for (const auto& [rows, width] : kSizes) {
    const auto count = std::int64_t{rows} * width;
    const auto x = draw({rows, width}) * 2;
    auto out = torch::empty_like(x);
    run()(Gelu{out.mutable_data_ptr(), x.const_data_ptr(), number(), count});
    expect_near(out, torch::gelu(wide(x), "tanh"));
    for (const auto& [sums_wanted, adds] :
         {std::pair{false, false}, {true, false}, {true, true}}) {
      auto gradient = draw({rows, width}), sums = draw({width});
      const auto wanted = at::gelu_backward(wide(gradient), wide(x), "tanh");
      auto wanted_sums = wanted.sum(0);
      if (adds) wanted_sums = wanted_sums + wide(sums);
      auto* place = gradient.mutable_data_ptr();
      run()(
          GeluBackward{.out = place,
                       .gradient = place,
                       .in = x.const_data_ptr(),
                       .number = number(),
                       .rows = rows,
                       .width = width,
                       .sums = {sums_wanted ? sums.mutable_data_ptr() : nullptr, adds},
                       .workspace = workspace(pack_columns_workspace(width))});
      expect_near(gradient, wanted);
      if (sums_wanted) expect_near(sums, wanted_sums);
    }
  }
}

TEST_P(RunnerTest, CrossEntropyLeavesItsGradientInTheLogits) {
  for (const auto& [columns, classes] :
       {std::pair{10, 7}, {64, 64}, {1000, 999}, {50304, 50257}, {120'001, 120'000}}) {
    const std::int64_t rows = columns > 20'000 ? 5 : 33;
    auto logits = draw({rows, columns});
    auto targets = torch::randint(classes, {rows}).to(GetParam().device);
    targets[rows / 2] = -100;  // a row that does not count
    const auto losses = numbers({rows}, torch::kFloat32);
    const auto factor = torch::full({1}, 0.5F, torch::device(GetParam().device));
    const auto leaf = wide(logits).requires_grad_();
    const auto wanted = torch::cross_entropy_loss(leaf.narrow(1, 0, classes), targets,
                                                  {}, at::Reduction::None, -100);
    (wanted.sum() * 1.5).backward();
    run()(CrossEntropy{.logits = logits.mutable_data_ptr(),
                       .targets = targets.const_data_ptr<std::int64_t>(),
                       .losses = losses.mutable_data_ptr<float>(),
                       .number = number(),
                       .rows = rows,
                       .columns = columns,
                       .classes = classes,
                       .scale = 3,
                       .scale_at = factor.const_data_ptr<float>()});
    expect_near(losses, wanted.detach());
    expect_near(logits, leaf.grad());
    EXPECT_EQ(logits[rows / 2].count_nonzero().item<std::int64_t>(), 0);
    EXPECT_EQ(logits.narrow(1, classes, columns - classes)
                  .count_nonzero()
                  .item<std::int64_t>(),
              0);
  }
}

TEST_P(RunnerTest, EmbeddingsAddUpAndTheirGradientsAreSummedByKey) {
  for (const auto& [count, width] :
       {std::pair{1, 3}, {50, 8}, {300, 100}, {777, 768}}) {
    const auto tokens = torch::randint(9, {count}).to(GetParam().device);
    const auto words = draw({12, width}), places = draw({7, width});
    const auto out = draw({count, width});
    run()(Embedding{.out = out.mutable_data_ptr(),
                    .tokens = tokens.const_data_ptr<std::int64_t>(),
                    .tokens_weight = words.const_data_ptr(),
                    .positions_weight = places.const_data_ptr(),
                    .number = number(),
                    .count = count,
                    .length = 7,
                    .width = width});
    const auto positions = torch::arange(count, tokens.options()).remainder(7);
    expect_near(out, wide(words).index_select(0, tokens) +
                         wide(places).index_select(0, positions));
    const auto [keys, order] = at::sort(tokens, /*stable=*/true, 0, false);
    for (const bool adds : {false, true}) {
      const auto place = draw({12, width});
      auto wanted = wide(place);
      // Rows that no token has are left alone.
      if (!adds) wanted.index_fill_(0, tokens, 0);
      wanted.index_add_(0, tokens, wide(out));
      run()(EmbeddingBackward{.weight_gradient = place.mutable_data_ptr(),
                              .gradient = out.const_data_ptr(),
                              .keys = keys.const_data_ptr<std::int64_t>(),
                              .order = order.const_data_ptr<std::int64_t>(),
                              .adds = adds,
                              .number = number(),
                              .count = count,
                              .width = width});
      expect_near(place, wanted);
    }
  }
}

TEST_P(RunnerTest, ColumnsArePackedAndSummed) {
  for (const auto& [rows, width] : kSizes) {
    for (const int parts : {1, 2, 3}) {
      PackColumns args{.num_parts = parts,
                       .workspace = workspace(pack_columns_workspace(parts * width)),
                       .number = number(),
                       .rows = rows,
                       .width = width};
      std::vector<Tensor> in;
      for (int i = 0; i < parts; ++i) in.push_back(draw({rows, width}));
      for (int i = 0; i < parts; ++i) args.parts[i] = in[i].const_data_ptr();
      const auto out = parts == 1 ? in[0] : draw({rows, parts * width});
      const auto sums = draw({parts * width});
      const bool adds = parts == 2;
      auto wanted = wide(torch::cat(in, 1)).sum(0);
      if (adds) wanted += wide(sums);
      args.out = out.mutable_data_ptr();
      args.sums = {sums.mutable_data_ptr(), adds};
      run()(args);
      EXPECT_TRUE(torch::equal(out, torch::cat(in, 1)));
      expect_near(sums, wanted);
    }
  }
}

}  // namespace lockstep::kernels
