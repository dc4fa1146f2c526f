// The memory of every stage is that of its formula, from the model's constructor to the
// last step: everything that is allocated for tensors is counted.
#include <atomic>

#include "lockstep/memory/memory_meter.h"
#include "lockstep/models/deferred_init.h"
#include "lockstep/precision/policy.h"
#include "tests/parallel/unit_rig.h"

namespace lockstep::test::units {
namespace {

constexpr std::int64_t kWidth = 192;

// Blocks of one size and nothing else.
struct TowerImpl : torch::nn::Module {
  TowerImpl() {
    for (int i = 0; i < 16; ++i) {
      layers.push_back(register_module(
          ::lockstep::str("layer", i),
          torch::nn::Linear(torch::nn::LinearOptions(kWidth, kWidth).bias(false))));
    }
  }
  Tensor forward(const Tensor& x, Engine& engine) {
    auto h = x;
    for (std::size_t i = 0; i < layers.size(); ++i) {
      h = engine.run_unit(
          i, [&](const Tensor& in) { return torch::tanh(layers[i]->forward(in)); }, h);
    }
    return h;
  }
  std::vector<torch::nn::Linear> layers;
};

// Bytes of a parameter by the formula of a stage: values, gradients, optimizer state.
double formula(int stage, int ranks, bool halves) {
  const double values = halves ? 2 : 4, gradients = values, state = halves ? 12 : 8;
  const double n = ranks;
  return (stage < 3 ? values : values / n) + (stage < 2 ? gradients : gradients / n) +
         (stage < 1 ? state : state / n);
}

// Returns the most bytes of parameters that were whole at a time, at stage 3.
std::int64_t train_few_steps(Communicator& c, int stage, bool halves) {
  models::DeferredInit init;
  const auto net = init.build([] { return std::make_shared<TowerImpl>(); });
  precision::convert(
      *net,
      {halves ? config::Precision::bf16_params : config::Precision::fp32, torch::kCPU});
  EngineOptions options;
  options.stage = parallel::kStages[static_cast<std::size_t>(stage)];
  options.layout.first_bucket_bytes = options.layout.bucket_bytes = 1;  // one a layer
  options.live_buckets = 1;
  options.prefetch_units = 1;
  for (const auto& layer : net->layers) options.units.push_back(&*layer);
  options.fill = [&](const auto& assign) { init.replay(assign); };
  Engine engine(*net, {c, c}, options);
  parallel::detail::FlatOptimizers optimizers({}, engine, c);
  const auto x = torch::ones({1, kWidth}, net->layers[0]->weight.options());
  for (int step = 0; step < 3; ++step) {
    engine.zero_gradients();
    Tensor loss;
    engine.forward([&] { loss = net->forward(x, engine).sum(); });
    loss.backward();
    engine.finish();
    optimizers.step({.lr = 0.01});
  }
  return engine.peak_gathered_bytes();
}

}  // namespace

class ZeroMemory : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroMemory, ::testing::Values(2, 3, 4));

// The ranks are threads, so that what travels is in nobody else's memory; a backend
// that copies what it sends (gloo) takes more.
TEST_P(ZeroMemory, IsThatOfTheFormulaFromTheFirstMomentOn) {
  const int ranks = GetParam();
  const double parameters = 16.0 * kWidth * kWidth;
  for (const bool halves : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      const memory::MemoryMeter meter(torch::kCPU);
      std::atomic<std::int64_t> gathered = 0;
      with_communicators(Rig::local, ranks, [&](Communicator& c) {
        gathered = train_few_steps(c, stage, halves);
      });
      const auto peak = static_cast<double>(meter.peak_bytes()) / ranks;
      const double layer = kWidth * kWidth * (halves ? 2 : 4);
      // A layer in float32 while it is drawn, or its gradient before it is in the
      // bucket; stage 2: the live bucket; stage 3: the live units.
      const double live = kWidth * kWidth * 4 + (stage >= 2 ? layer : 0) +
                          static_cast<double>(gathered);
      constexpr double kActivations = 16 * 4 * kWidth * 4 + 65536;
      const auto bytes = formula(stage, ranks, halves);
      EXPECT_LE(peak, 1.02 * bytes * parameters + live + kActivations)
          << "stage " << stage << (halves ? " in bf16, " : ", ") << peak / parameters
          << " bytes a parameter; formula " << bytes;
      EXPECT_GE(peak, 0.98 * bytes * parameters) << "something was not counted";
      EXPECT_LE(gathered, static_cast<std::int64_t>(3 * layer));
      RecordProperty(::lockstep::str("bytes_stage", stage, halves ? "_bf16" : "_fp32"),
                     ::lockstep::str(peak / parameters));
    }
  }
}

}  // namespace lockstep::test::units
