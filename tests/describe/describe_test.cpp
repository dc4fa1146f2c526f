// What a model is said to take, against what it takes.
#include "lockstep/describe/describe.h"

#include <map>

#include "lockstep/hardware/machine.h"
#include "lockstep/memory/memory_meter.h"
#include "lockstep/memory/offload.h"
#include "lockstep/memory/out_of_memory.h"
#include "lockstep/models/deferred.h"
#include "lockstep/models/gpt_places.h"
#include "lockstep/train/step.h"
#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::test {
namespace {

data::SampleSpec images(std::int64_t channels, std::int64_t size) {
  return {.shape = {channels, size, size}, .num_classes = 10};
}

std::shared_ptr<models::Model> model_of(const std::string& name,
                                        const data::SampleSpec& spec) {
  config::ModelConfig config;
  config.name = name;
  config.hidden = 512;
  return models::build(config, {spec.shape, spec.num_classes});
}

std::int64_t parameters_in(const torch::nn::Module& module) {
  std::int64_t count = 0;
  for (const auto& parameter : module.parameters()) count += parameter.numel();
  return count;
}

double kept_at(const run::ModelDescription& described, std::int64_t batch) {
  double bytes = 0;
  for (const auto& unit : described.units) bytes += unit.kept.fp32.at(batch);
  return bytes;
}

// The bytes that operators save for backward, as autograd's own hooks see them.
std::int64_t saved_bytes(models::Model& model, const data::SampleSpec& spec,
                         std::int64_t batch) {
  train::use_layout(model);
  memory::Offload offload({.resident = model.parameters(), .smallest_bytes = 1});
  const precision::Policy policy{config::Precision::fp32, torch::kCPU};
  data::BatchStage stage({.spec = spec, .format = model.memory_format()});
  stage.reserve(batch);
  const auto samples = data::made_up_batch(spec, batch, torch::kCPU);
  const auto& staged = stage.stage(samples, 0, batch);
  const memory::Offload::Scope scope(&offload);
  const auto outputs = train::Forward(model, policy)(staged);
  const auto losses = test::task_for(spec)->sums(outputs, staged, {});
  return offload.moved_bytes();
}

}  // namespace

TEST(Describe, ParametersAreThoseOfTheModule) {
  for (const auto* name : {"cnn", "mlp", "resnet9", "resnet18"}) {
    const auto spec = images(3, 32);
    const auto model = model_of(name, spec);
    const auto described =
        describe::describe_model(*model, spec, *test::task_for(spec));
    EXPECT_EQ(described.num_parameters(), parameters_in(*model)) << name;
    EXPECT_EQ(described.can_recompute(), model->num_blocks() > 0) << name;
    EXPECT_EQ(described.units.size(), model->num_blocks() + 1) << name;
  }
}

TEST(Describe, ActivationsAreTheBytesThatAreSaved) {
  constexpr std::int64_t kBatch = 6;
  for (const auto* name : {"cnn", "mlp", "resnet9", "resnet18"}) {
    const auto spec = images(3, 32);
    const auto model = model_of(name, spec);
    const auto described =
        describe::describe_model(*model, spec, *test::task_for(spec));
    const auto saved = static_cast<double>(saved_bytes(*model, spec, kBatch));
    // Staged inputs in two layouts, logits and answers are kept, too, but not saved.
    const double staged = 2.0 * kBatch * 3 * 32 * 32 * 4;
    EXPECT_GE(kept_at(described, kBatch), 0.9 * saved) << name;
    EXPECT_LE(kept_at(described, kBatch), 1.1 * saved + staged) << name;
  }
}

TEST(Describe, OperationsAreThoseOfTheProducts) {
  const auto spec = images(1, 28);
  const auto mlp =
      describe::describe_model(*model_of("mlp", spec), spec, *test::task_for(spec));
  EXPECT_DOUBLE_EQ(mlp.forward_flops(), 2.0 * (784 * 512 + 512 * 512 + 512 * 10));
  const auto cnn =
      describe::describe_model(*model_of("cnn", spec), spec, *test::task_for(spec));
  EXPECT_DOUBLE_EQ(
      cnn.forward_flops(),
      2.0 * (28 * 28 * 32 * 9 + 14 * 14 * 64 * 32 * 9 + 3136 * 512 + 512 * 10));
  EXPECT_GT(cnn.operators(), 5);
}

// Attention included: 2 T products for each of its outputs, whoever computes it.
TEST(Describe, OperationsOfATransformerAreThoseOfItsFormula) {
  constexpr std::int64_t kLength = 24, kHidden = 32, kLayers = 3, kWords = 50;
  const data::SampleSpec spec{.shape = {kLength},
                              .dtype = torch::kInt64,
                              .num_classes = kWords,
                              .target_shape = {kLength}};
  const auto model_for = [&] {
    return models::build(
        {.name = "gpt", .hidden = kHidden, .layers = kLayers, .heads = 4},
        {spec.shape, spec.num_classes});
  };
  const double expected =
      2.0 * kLength *
      (kLayers * (12 * kHidden * kHidden + 2 * kLength * kHidden) + kHidden * kWords);
  const auto measured =
      describe::describe_model(*model_for(), spec, *test::task_for(spec));
  EXPECT_DOUBLE_EQ(measured.forward_flops(), expected);
  const auto model = [&] {
    const models::DeferredMemory deferred;
    return model_for();
  }();
  const auto counted = describe::describe_model(*model, spec, *test::task_for(spec));
  EXPECT_DOUBLE_EQ(counted.forward_flops(), expected);
  EXPECT_EQ(counted.num_parameters(), measured.num_parameters());
}

// The largest GPT-2: 1.5 billion parameters, 6 GB of weights that nobody makes.
TEST(Describe, ATransformerLargerThanMemoryIsDescribedByItsFormula) {
  constexpr std::int64_t kTokens = 1024, kWide = 1600, kBlocks = 48, kNumWords = 50257;
  const data::SampleSpec spec{.shape = {kTokens},
                              .dtype = torch::kInt64,
                              .num_classes = kNumWords,
                              .target_shape = {kTokens}};
  const memory::HostMemoryLimit memory(256
                                       << 20);  // of tensors; the embedding has more
  const auto model = [&] {
    const models::DeferredMemory deferred;
    return models::build(
        {.name = "gpt", .hidden = kWide, .layers = kBlocks, .heads = 25},
        {spec.shape, spec.num_classes});
  }();
  const auto described = describe::describe_model(*model, spec, *test::task_for(spec));
  const std::int64_t of_block = 12 * kWide * kWide + 13 * kWide;
  EXPECT_EQ(described.num_parameters(),
            (kNumWords + kTokens) * kWide + kBlocks * of_block + 2 * kWide);
  EXPECT_EQ(described.num_parameters(), 1'557'611'200);
  // Two for a product and its sum: by weights, by keys and values, by the head.
  const double wide = kWide, tokens = kTokens;
  EXPECT_DOUBLE_EQ(
      described.forward_flops(),
      2 * tokens *
          (kBlocks * (12 * wide * wide + 2 * tokens * wide) + wide * kNumWords));
  EXPECT_EQ(described.units.size(), 49U) << "the blocks, and what is around them";
}

TEST(Describe, SixteenBitsKeepLessOfASampleAndCopiesOfWeights) {
  const auto spec = images(3, 32);
  const auto described =
      describe::describe_model(*model_of("resnet9", spec), spec, *test::task_for(spec));
  double half = 0, whole = 0, fixed = 0;
  for (const auto& unit : described.units) {
    half += static_cast<double>(unit.kept.half.per_sample_bytes);
    whole += static_cast<double>(unit.kept.fp32.per_sample_bytes);
    fixed += static_cast<double>(unit.kept.half.fixed_bytes);
  }
  EXPECT_LT(half, 0.75 * whole);
  EXPECT_GT(fixed, 1.5 * static_cast<double>(described.num_parameters()));
}

// Passes without memory come to what passes with it take.
class DescribeModel : public ::testing::TestWithParam<const char*> {};

TEST_P(DescribeModel, WithoutMemoryItIsDescribedLikeOneThatHasIt) {
  const auto spec = images(3, 32);
  const auto measured = describe::describe_model(*model_of(GetParam(), spec), spec,
                                                 *test::task_for(spec));
  const auto model = [&] {
    const models::DeferredMemory deferred;
    return model_of(GetParam(), spec);
  }();
  ASSERT_TRUE(model->parameters()[0].is_meta());
  const auto counted = describe::describe_model(*model, spec, *test::task_for(spec));
  ASSERT_EQ(counted.units.size(), measured.units.size());
  EXPECT_EQ(counted.num_parameters(), measured.num_parameters());
  EXPECT_EQ(counted.buffer_bytes(), measured.buffer_bytes());
  EXPECT_DOUBLE_EQ(counted.forward_flops(), measured.forward_flops());
  // oneDNN keeps some of its own, and pads.
  EXPECT_NEAR(kept_at(counted, 16), kept_at(measured, 16), 0.1 * kept_at(measured, 16));
}

INSTANTIATE_TEST_SUITE_P(Models, DescribeModel,
                         ::testing::Values("cnn", "mlp", "resnet9", "resnet18",
                                           "resnet50"),
                         [](const auto& model) { return std::string(model.param); });

TEST(Describe, AModelLargerThanMemoryIsDescribedWithoutAny) {
  config::Config config;
  config.data.name = "synthetic";
  config.data.shape = {1, 28, 28};
  config.data.synthetic_samples = 100;
  config.model.name = "mlp";
  config.model.hidden = 65536;
  config.model.layers = 10;
  const memory::HostMemoryLimit memory(256 << 20);  // of tensors
  const auto described = describe::describe_model(config);
  const std::int64_t hidden = 65536;
  EXPECT_EQ(described.num_parameters(),
            (784 + 1) * hidden + 9 * (hidden + 1) * hidden + (hidden + 1) * 10);
  EXPECT_THAT(described.source, testing::HasSubstr("too large to be tried here"));
  double half = 0, whole = 0;
  for (const auto& unit : described.units) {
    half += static_cast<double>(unit.kept.half.per_sample_bytes);
    whole += static_cast<double>(unit.kept.fp32.per_sample_bytes);
  }
  EXPECT_GT(whole, 10.0 * hidden * 4) << "what relu leaves of every layer";
  EXPECT_LT(half, 0.75 * whole);
}

// Gradients of parameters have their memory already.
class IntoMemory : public GradientSink {
 public:
  explicit IntoMemory(const models::Model& model) {
    for (const auto& p : model.parameters()) {
      places_[p.unsafeGetTensorImpl()] = torch::zeros_like(p);
    }
  }
  Destination destination_of(const torch::Tensor& parameter) override {
    return {places_.at(parameter.unsafeGetTensorImpl()), false};
  }
  void ready(const torch::Tensor&) override {}

 private:
  std::map<const void*, torch::Tensor> places_;
};

TEST(Describe, PassesOfTheGptsOwnTakeWhatIsSaidOfThem) {
  constexpr std::int64_t kBatch = 4, kLength = 64, kHidden = 32, kWords = 200;
  const auto model = models::build({.name = "gpt",
                                    .hidden = kHidden,
                                    .layers = 6,
                                    .heads = 2,
                                    .own_backward = config::Auto<bool>(true)},
                                   {{kLength}, kWords});
  IntoMemory sink(*model);
  const auto tokens = torch::arange(kBatch * kLength).remainder(kWords);
  const auto scale = torch::ones({1});
  auto& own = *model->own_backward();
  memory::MemoryMeter meter(torch::kCPU);
  const auto before = meter.used_bytes();
  own.forward_loss({{"input", tokens.view({kBatch, kLength})}}, {tokens, scale});
  own.backward_loss(sink);
  const auto said = models::gpt_pass_bytes(
      {.layers = 6, .hidden = kHidden, .heads = 2, .rows = kWords}, kBatch * kLength);
  const auto taken = meter.peak_bytes() - before;
  EXPECT_GE(taken, said);
  // Attention on a CPU has its gradients by heads, then as matrices; keys are sorted.
  const auto of_attention = 10 * kHidden * kBatch * kLength * 4;
  EXPECT_LE(taken, said + of_attention);
}

TEST(Describe, ARecipeIsEnoughAndNothingStaysBehind) {
  config::Config config;
  config.data.name = "synthetic";
  config.data.shape = {3, 32, 32};
  config.data.synthetic_samples = 100;
  config.model.name = "resnet9";
  const auto described = describe::describe_model(config);
  EXPECT_EQ(described.name, "resnet9");
  EXPECT_EQ(described.train_samples, 100);
  EXPECT_EQ(described.sample_bytes, 3 * 32 * 32 + 8);
  const auto text = run::to_json(described);
  EXPECT_EQ(run::to_json(run::model_from_json(text, "x")), text);
  EXPECT_EQ(described.cpu_model, hardware::detect().cpu_model);
  EXPECT_GT(described.process_bytes, 0);
  ASSERT_FALSE(described.trials.empty());
  EXPECT_EQ(described.trials[0].threads, 1);
  for (const auto& trial : described.trials) {
    EXPECT_GE(trial.samples, 2);
    EXPECT_GT(trial.seconds, 0);
  }
  const auto counted = [](run::ModelDescription one) {
    one.trials.clear();
    one.process_bytes = 0;
    return run::to_json(one);
  };
  EXPECT_EQ(counted(describe::describe_model(config)), counted(described))
      << "what is counted is the same every time";
}

}  // namespace lockstep::test
