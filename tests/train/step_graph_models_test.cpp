// Steps of every model that CUDA graphs hold have the bits of steps that are launched
// one kernel after the other.
#include <cmath>
#include <map>

#include "lockstep/kernels/own_stream.h"
#include "lockstep/monitor/console.h"
#include "lockstep/train/step_graph.h"
#include "lockstep/train/trainer.h"
#include "tests/comm/ranks.h"
#include "tests/train/small_data.h"

namespace lockstep::train {
namespace {

constexpr std::int64_t kStepsOfAModel = 30;
constexpr std::int64_t kSequence = 32, kNumTokens = 61;

// Sequences in which a token follows from the one before it.
class CountedTokens : public data::Dataset {
 public:
  CountedTokens() {
    spec_.shape = spec_.target_shape = {kSequence};
    spec_.dtype = torch::kInt64;
    spec_.num_classes = kNumTokens;
  }
  std::int64_t size() const noexcept override { return 96; }
  const data::SampleSpec& spec() const noexcept override { return spec_; }
  void read_sample(const data::Visit& visit,
                   const data::SampleBuffer& room) const override {
    auto* input = reinterpret_cast<std::int64_t*>(room.input.data());
    for (std::int64_t i = 0; i < kSequence; ++i) {
      const auto token = (visit.index * 7 + i * (1 + visit.index % 5)) % kNumTokens;
      input[i] = token;
      room.target[static_cast<std::size_t>(i)] = (token * 3 + 1) % kNumTokens;
    }
  }

 private:
  data::SampleSpec spec_;
};

config::Config model_on_gpu(const std::string& name) {
  auto config = test::quick_config();
  config.model.name = name;
  config.parallel.device = config::Device::cuda;
  config.data.pin_memory = true;
  config.train.deterministic = true;
  config.train.log_every = 1;
  config.train.steps = kStepsOfAModel;
  config.train.epochs = 0;
  return config;
}

struct ModelRun {
  std::map<std::int64_t, double> losses;  // by step
  std::string weights;                    // bytes of the file
};

ModelRun run_model(const config::Config& config, const RunHooks& hooks) {
  const files::TemporaryDirectory folder;
  const auto run = run::RunDirectory::create(folder.path() / "runs", {.name = "r"});
  monitor::Console console({.write = [](std::string_view) {}});
  const StopRequest stop;
  comm::JoinOptions options;
  options.device = torch::Device(torch::kCUDA, 0);
  auto world = comm::join({}, options);
  ModelRun ran;
  Reporter reporter({run, console}, config.monitor, {.rank = 0, .ranks = 1});
  const auto result =
      train(test::resolved(config), {run, reporter, stop, world}, hooks);
  ran.weights = test::read_file(result.weights);
  for (const auto& line : monitor::read_metrics(run.metrics())) {
    if (line.split == monitor::Split::train) ran.losses[line.step] = line.loss;
  }
  return ran;
}

// graph=on is an error where steps can not be held, so they are.
void expect_bits_of_eager_steps(config::Config config, const RunHooks& hooks = {}) {
  config.train.graph = config::Graph::off;
  const auto eager = run_model(config, hooks);
  config.train.graph = config::Graph::on;
  const auto held = run_model(config, hooks);
  EXPECT_EQ(eager.losses.size(), static_cast<std::size_t>(kStepsOfAModel));
  EXPECT_EQ(held.losses, eager.losses);
  EXPECT_FALSE(eager.weights.empty());
  EXPECT_TRUE(held.weights == eager.weights) << "of the weights";
}

TEST(StepGraphModelsGpu, ImageModelsHaveTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  for (const auto* name : {"cnn", "mlp", "resnet18"}) {
    SCOPED_TRACE(name);
    expect_bits_of_eager_steps(model_on_gpu(name));
  }
}

TEST(StepGraphModelsGpu, ABackwardPassThatIsWrittenOutHasTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = model_on_gpu("mlp");
  config.model.own_backward = true;
  for (const std::int64_t micro : {16, 5}) {
    config.batch.micro = micro;
    expect_bits_of_eager_steps(config);
  }
}

TEST(StepGraphModelsGpu, APlainGptWithDropoutHasTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  auto config = model_on_gpu("gpt");
  config.model.hidden = 64;
  config.model.layers = 2;
  config.model.heads = 2;
  config.model.dropout = 0.2;
  config.model.own_backward = false;
  config.data.train_samples = config.data.eval_samples = 0;
  const auto tokens = std::make_shared<CountedTokens>();
  expect_bits_of_eager_steps(config, {.train_data = tokens, .eval_data = tokens});
}

// What came of steps whose micro-batches change in the middle.
struct ChangedRun {
  std::vector<bool> held;  // by step: whether a graph made it
  std::vector<torch::Tensor> weights;
  double loss = 0;
};

data::Batch batch_of_step(const data::SampleSpec& spec, std::int64_t step) {
  auto generator = at::detail::createCPUGenerator(static_cast<std::uint64_t>(step + 1));
  const auto inputs =
      torch::randint(256, {16, 1, 8, 8}, generator, torch::kInt64).to(torch::kUInt8);
  const auto targets = torch::randint(spec.num_classes, {16}, generator, torch::kInt64);
  return {.global_size = 16,
          .size = 16,
          .largest_size = 16,
          .inputs = inputs.to(torch::kCUDA),
          .targets = targets.to(torch::kCUDA)};
}

// The loop of the trainer, so that a test can change what no callback can.
ChangedRun run_with_change(config::Graph wanted) {
  const torch::Device device(torch::kCUDA, 0);
  comm::JoinOptions options;
  options.device = device;
  auto world = comm::join({}, options);
  const kernels::OwnStream stream(device, /*wanted=*/true);
  const kernels::OwnStream::Scope on_stream(stream);
  auto config = model_on_gpu("mlp");
  config.train.graph = wanted;
  const auto resolved = test::resolved(config);
  const auto spec = test::SmallImages(16).spec();
  torch::manual_seed(11);
  const auto model =
      models::build({.name = "mlp", .hidden = 16}, {spec.shape, spec.num_classes});
  model->to(device);
  const auto strategy = parallel::make_strategy(*resolved, *model, world);
  const auto task = test::task_for(spec);
  Step step({.model = model,
             .task = task,
             .strategy = *strategy,
             .policy = {config::Precision::fp32, device},
             .spec = spec,
             .micro_batch = 16});
  task::Tally tally(task, device);
  const precision::LossScaler scaler(resolved->precision);
  StepGraph graph({.train = resolved->train,
                   .model = *model,
                   .step = step,
                   .strategy = *strategy,
                   .tally = tally,
                   .scaler = scaler,
                   .world = world,
                   .spec = spec});
  constexpr double kRate = 0.01;
  ChangedRun ran;
  for (std::int64_t i = 0; i < kStepsOfAModel; ++i) {
    if (i == kStepsOfAModel / 2) step.set_micro_batch(5);
    const auto batch = batch_of_step(spec, i);
    ran.held.push_back(graph.takes(batch, i, {}));
    if (ran.held.back()) {
      graph.passes(batch, i, {});
      graph.update(kRate, /*wants_norm=*/false, i);
      graph.outcomes(/*all=*/true);
      continue;
    }
    strategy->begin_step(step.num_passes(batch));
    step.backward(batch, tally, {.step = i});
    strategy->finish();
    strategy->update({.lr = kRate});
  }
  for (const auto& p : model->parameters()) ran.weights.push_back(p.detach().cpu());
  ran.loss = tally.means().loss;
  return ran;
}

TEST(StepGraphModelsGpu, AnotherMicroBatchIsCapturedAgainAndHasTheSameBits) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU";
  const auto eager = run_with_change(config::Graph::off);
  const auto held = run_with_change(config::Graph::on);
  const auto middle = static_cast<std::size_t>(kStepsOfAModel / 2);
  EXPECT_TRUE(held.held[middle - 1]);
  EXPECT_FALSE(held.held[middle]) << "nobody has captured this cut";
  EXPECT_TRUE(held.held.back()) << "it was captured again";
  for (const bool any : eager.held) EXPECT_FALSE(any);
  EXPECT_EQ(held.loss, eager.loss);
  ASSERT_EQ(held.weights.size(), eager.weights.size());
  for (std::size_t i = 0; i < held.weights.size(); ++i) {
    EXPECT_TRUE(held.weights[i].equal(eager.weights[i])) << i;
  }
}

}  // namespace
}  // namespace lockstep::train
