#include "lockstep/train/step.h"

#include <torch/optim/adamw.h>

#include "tests/support/support.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

// Everything one rank needs for steps, made anew from a seed.
struct Rig {
  explicit Rig(const test::SmallImages& data, std::int64_t micro,
               const char* name = "mlp",
               config::Precision mode = config::Precision::fp32)
      : policy{mode, torch::kCPU}, task(test::task_for(data.spec())) {
    torch::manual_seed(11);
    model = models::build({.name = name, .hidden = 16},
                          {data.spec().shape, data.spec().num_classes});
    strategy = parallel::make_strategy(config, *model, world);
    step.emplace(Step::Parts{model, task, *strategy, policy, data.spec(), micro});
  }
  void run(const data::Batch& batch, double lr = 0.01) {
    strategy->begin_step();
    step->backward(batch, tally);
    strategy->finish();
    strategy->update({.lr = lr});
  }

  config::Config config = test::small_config();
  comm::World world = comm::join({}, {});
  precision::Policy policy;
  std::shared_ptr<task::Task> task;
  std::shared_ptr<models::Model> model;
  std::unique_ptr<parallel::Strategy> strategy;
  std::optional<Step> step;
  task::Tally tally{task, torch::kCPU};
};

TEST(Step, EqualsAPlainLoopOfLibTorch) {
  const test::SmallImages data(32);
  Rig rig(data, 8);
  torch::manual_seed(11);
  const auto plain =
      models::build({.name = "mlp", .hidden = 16}, {data.spec().shape, 4});
  torch::optim::AdamW adamw(plain->parameters(),
                            torch::optim::AdamWOptions(0.01).weight_decay(0.01));
  data::Loader ours(data, {.batch = 8, .epochs = 2});
  data::Loader theirs(data, {.batch = 8, .epochs = 2});
  while (const auto* batch = ours.next()) {
    rig.run(*batch);
    const auto* again = theirs.next();
    adamw.zero_grad();
    const auto x =
        again->inputs.to(torch::kFloat32) * data.spec().scale + data.spec().shift;
    torch::cross_entropy_loss(plain->forward(x), again->targets).backward();
    adamw.step();
  }
  const auto expected = plain->named_parameters();
  for (const auto& item : rig.model->named_parameters()) {
    // Eight updates of size 0.01; the fused update rounds in another order.
    EXPECT_TRUE(item.value().allclose(expected[item.key()], 1e-4, 1e-6)) << item.key();
  }
}

// The rule of the global batch: how a batch is cut does not matter, also when the last
// piece is short.
TEST(Step, MicroBatchesGiveTheGradientOfTheWholeBatch) {
  const test::SmallImages data(24);
  std::vector<torch::Tensor> gradients;
  std::vector<double> losses;
  for (const std::int64_t micro : {24, 8, 7, 1}) {
    Rig rig(data, micro);
    data::Loader loader(data, {.batch = 24});
    rig.run(*loader.next());
    std::vector<torch::Tensor> flat;
    for (const auto& p : rig.model->parameters()) flat.push_back(p.grad().flatten());
    gradients.push_back(torch::cat(flat));
    losses.push_back(rig.tally.means().loss);
    EXPECT_EQ(rig.tally.means().count, 24);
  }
  for (std::size_t i = 1; i < gradients.size(); ++i) {
    // Sums of 24 terms in another order.
    EXPECT_TRUE(gradients[i].allclose(gradients[0], 1e-4, 1e-6)) << i;
    EXPECT_NEAR(losses[i], losses[0], 1e-6);
  }
}

TEST(Step, AShortLastBatchIsAveragedOverItsOwnSize) {
  const test::SmallImages data(11);
  Rig rig(data, 8);
  data::Loader loader(data, {.batch = 8, .shuffle = false, .epochs = 1});
  loader.next();
  const auto* last = loader.next();
  ASSERT_EQ(last->size, 3);
  rig.run(*last, 0);
  const auto x =
      last->inputs.to(torch::kFloat32) * data.spec().scale + data.spec().shift;
  const auto loss = torch::cross_entropy_loss(rig.model->forward(x), last->targets);
  EXPECT_NEAR(rig.tally.means().loss, loss.item<double>(), 1e-6);
  const auto expected = torch::autograd::grad({loss}, rig.model->parameters());
  std::size_t i = 0;
  for (const auto& p : rig.model->parameters()) {
    EXPECT_TRUE(p.grad().allclose(expected[i++], 1e-4, 1e-6));
  }
}

TEST(Step, ManyChannelsAreBroughtIntoTheModelsLayout) {
  const test::SmallImages data(8, /*channels=*/3);
  data::BatchStage stage(
      {.spec = data.spec(), .format = torch::MemoryFormat::ChannelsLast});
  stage.reserve(8);
  data::Loader loader(data, {.batch = 8});
  const auto* batch = loader.next();
  const auto seen = stage.stage(*batch, 0, 8).at("input");
  EXPECT_TRUE(seen.is_contiguous(torch::MemoryFormat::ChannelsLast));
  const auto expected =
      batch->inputs.to(torch::kFloat32) * data.spec().scale + data.spec().shift;
  EXPECT_TRUE(seen.allclose(expected, 0, 1e-6));  // one rounding against two
}

// Every channel its own scale, and floats as well as bytes.
TEST(Step, SamplesAreNormalisedByChannel) {
  data::SampleSpec spec{.shape = {3, 4, 4}, .num_classes = 4};
  spec.channels = {{0.5F, 1}, {0.25F, -1}, {0.125F, 0}};
  const auto bytes = torch::randint(256, {6, 3, 4, 4}, torch::kUInt8);
  const auto scale = torch::tensor({0.5, 0.25, 0.125}, torch::kFloat32).view({3, 1, 1});
  const auto shift = torch::tensor({1, -1, 0}, torch::kFloat32).view({3, 1, 1});
  const auto targets = torch::zeros({6}, torch::kInt64);
  for (const auto dtype : {torch::kUInt8, torch::kFloat32}) {
    spec.dtype = dtype;
    for (const auto format :
         {torch::MemoryFormat::Contiguous, torch::MemoryFormat::ChannelsLast}) {
      data::BatchStage stage({.spec = spec, .format = format});
      stage.reserve(8);
      const data::Batch batch{.inputs = bytes.to(dtype), .targets = targets};
      const auto seen = stage.stage(batch, 0, 6).at("input");
      EXPECT_TRUE(seen.equal(bytes.to(torch::kFloat32) * scale + shift));  // exact
    }
  }
}

TEST(Step, TokensReachTheModelAsTheyAre) {
  const data::SampleSpec spec{.shape = {5}, .dtype = torch::kInt64};
  data::BatchStage stage({.spec = spec});
  stage.reserve(8);
  const auto tokens = torch::randint(1 << 20, {3, 5}, torch::kInt64);
  const data::Batch batch{.inputs = tokens, .targets = tokens};
  EXPECT_TRUE(stage.stage(batch, 0, 3).at("input").equal(tokens));
}

// A model that answers every token with a row of a table.
struct Table : models::Model {
  Table() {
    torch::manual_seed(2);
    rows = register_parameter("rows", torch::rand({7, 7}));
  }
  torch::Tensor forward(const torch::Tensor& input) override {
    return torch::embedding(rows, input);
  }
  torch::Tensor rows;
};

TEST(Step, TheLossOfTokensIsDividedByTheirNumber) {
  const data::SampleSpec spec{
      .shape = {5}, .dtype = torch::kInt64, .num_classes = 7, .target_shape = {5}};
  const auto inputs = torch::randint(7, {4, 5}, torch::kInt64);
  const auto targets = torch::randint(7, {4, 5}, torch::kInt64);
  for (const std::int64_t micro : {4, 3}) {
    const auto model = std::make_shared<Table>();
    auto config = test::small_config();
    auto world = comm::join({}, {});
    const auto strategy = parallel::make_strategy(config, *model, world);
    const auto task = test::task_for(spec);
    Step step(
        {model, task, *strategy, {config::Precision::fp32, torch::kCPU}, spec, micro});
    task::Tally tally(task, torch::kCPU);
    strategy->begin_step();
    step.backward({.global_size = 4, .size = 4, .inputs = inputs, .targets = targets},
                  tally);
    const auto plain = std::make_shared<Table>();
    const auto loss = torch::cross_entropy_loss(plain->forward(inputs).flatten(0, 1),
                                                targets.flatten());
    loss.backward();
    EXPECT_EQ(tally.means().count, 20);
    EXPECT_NEAR(tally.means().loss, loss.item<double>(), 1e-6);
    EXPECT_TRUE(model->rows.grad().allclose(plain->rows.grad(), 1e-5, 1e-7));
  }
}

// PyTorch's mean divides by the sum of the weights of the targets; where samples are
// mixed it counts them.
TEST(Step, ClassesWeighInTheLossAsInPyTorchsMean) {
  const test::SmallImages data(12);
  for (const double mixup : {0.0, 1.0}) {
    Rig rig(data, 12);
    data::Loader loader(data, {.batch = 12, .mixing = {.mixup = mixup}});
    const auto* batch = loader.next();
    const auto weights = torch::tensor({1.0, 3.0, 0.0, 0.5}, torch::kFloat32);
    rig.step.emplace(Step::Parts{.model = rig.model,
                                 .task = test::task_for(data.spec(), weights),
                                 .strategy = *rig.strategy,
                                 .policy = rig.policy,
                                 .spec = data.spec(),
                                 .micro_batch = 5});
    rig.run(*batch, 0);
    const auto x =
        batch->inputs.to(torch::kFloat32) * data.spec().scale + data.spec().shift;
    const auto expected = torch::cross_entropy_loss(
        rig.model->forward(x), batch->targets, weights, at::Reduction::Mean);
    // Sums in float32, in another order.
    EXPECT_NEAR(rig.tally.means().loss, expected.item<double>(), 1e-5);
    const auto gradients = torch::autograd::grad({expected}, rig.model->parameters());
    std::size_t i = 0;
    for (const auto& p : rig.model->parameters()) {
      EXPECT_TRUE(p.grad().allclose(gradients[i++], 1e-4, 1e-6));
    }
  }
}

TEST(Step, ABatchWhoseTargetsAllWeighNothingHasNoLoss) {
  const test::SmallImages data(12);
  Rig rig(data, 12);
  data::Loader loader(data, {.batch = 12});
  const auto* batch = loader.next();
  rig.step.emplace(Step::Parts{.model = rig.model,
                               .task = test::task_for(data.spec(), torch::zeros({4})),
                               .strategy = *rig.strategy,
                               .policy = rig.policy,
                               .spec = data.spec(),
                               .micro_batch = 5});
  rig.run(*batch, 0);
  EXPECT_EQ(rig.tally.means().loss, 0);
  for (const auto& p : rig.model->parameters()) {
    EXPECT_EQ(p.grad().abs().max().item<double>(), 0);
  }
}

TEST(Step, MixedSamplesAreJudgedByTheSharesOfTheirClasses) {
  const test::SmallImages data(12);
  for (const auto mode : {config::Precision::fp32, config::Precision::bf16}) {
    Rig rig(data, 5, "mlp", mode);
    data::Loader loader(data, {.batch = 12, .mixing = {.mixup = 1}});
    const auto* batch = loader.next();
    ASSERT_EQ(batch->targets.size(1), 4);
    rig.run(*batch, 0);
    const auto x =
        batch->inputs.to(torch::kFloat32) * data.spec().scale + data.spec().shift;
    const auto logits = rig.model->forward(x);
    const auto expected = torch::cross_entropy_loss(logits, batch->targets);
    // bf16 has 8 bits.
    const double tolerance = mode == config::Precision::fp32 ? 1e-5 : 0.05;
    EXPECT_NEAR(rig.tally.means().loss, expected.item<double>(), tolerance);
    EXPECT_EQ(rig.tally.means().count, 12);
  }
}

TEST(Step, Bf16TrainsToNearlyTheSameLoss) {
  const test::SmallImages data(64);
  const auto loss_after = [&](config::Precision mode) {
    Rig rig(data, 16, "mlp", mode);
    data::Loader loader(data, {.batch = 16, .epochs = 20});
    while (const auto* batch = loader.next()) {
      rig.tally.reset();
      rig.run(*batch);
    }
    return rig.tally.means().loss;
  };
  const auto exact = loss_after(config::Precision::fp32);
  EXPECT_LT(exact, 0.5);  // 1.39 before training
  EXPECT_NEAR(loss_after(config::Precision::bf16), exact, 0.1);
}

TEST(Tally, MeansAreOverSamplesNotBatches) {
  task::Tally tally(test::task_for({.shape = {1}, .num_classes = 2}), torch::kCPU);
  tally.add(torch::tensor(3.0), {}, 3);
  tally.add(torch::tensor(5.0), {}, 1);
  tally.metrics().add_(2);  // right answers
  EXPECT_DOUBLE_EQ(tally.means().loss, 2);
  EXPECT_DOUBLE_EQ(tally.means().find("accuracy").value(), 0.5);
  tally.reset();
  EXPECT_EQ(tally.means().count, 0);
  EXPECT_DOUBLE_EQ(tally.means().loss, 0);
}

}  // namespace
}  // namespace lockstep::train
