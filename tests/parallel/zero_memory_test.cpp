// The memory of every stage is that of its formula, and of the planner, from the
// model's constructor to the last step: everything that is allocated for tensors is
// counted.
#include <atomic>
#include <fstream>
#include <sstream>

#include "lockstep/memory/memory_meter.h"
#include "lockstep/models/deferred_init.h"
#include "lockstep/planner/cost.h"
#include "lockstep/planner/machine_grammar.h"
#include "lockstep/precision/policy.h"
#include "tests/parallel/unit_rig.h"

namespace lockstep::test::units {
namespace {

constexpr std::int64_t kWidth = 192, kLayers = 16;

// Blocks of one size and nothing else.
struct TowerImpl : torch::nn::Module {
  TowerImpl() {
    for (std::int64_t i = 0; i < kLayers; ++i) {
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

// A way of training that is counted.
struct Counted {
  int stage = 0;
  int ranks = 1;
  int group = 0;
  bool halves = false;

  int sharers() const { return group > 0 ? group : ranks; }
  double layer_bytes() const { return kWidth * kWidth * (halves ? 2 : 4); }
  std::string text() const {
    return ::lockstep::str("stage", stage, halves ? "_bf16" : "_fp32", "_", ranks,
                           group > 0 ? ::lockstep::str("_groups_of_", group) : "");
  }
};

// Bytes of a parameter by the formula of a stage: values, gradients, optimizer state.
double formula(const Counted& how) {
  const double values = how.halves ? 2 : 4, gradients = values;
  const double state = how.halves ? 12 : 8, n = how.sharers();
  return (how.stage < 3 ? values : values / n) +
         (how.stage < 2 ? gradients : gradients / n) +
         (how.stage < 1 ? state : state / n);
}

// What was seen on a rank.
struct Seen {
  double bytes = 0;     // the most at a time
  double gathered = 0;  // of these, parameters that were whole at stage 3
};

// Returns the bytes that this rank shares with others: every rank maps the memory of
// all, of which each has as much as any other.
double shared_bytes(int ranks) {
  std::ifstream maps("/proc/self/maps");
  double bytes = 0;
  for (std::string line; std::getline(maps, line);) {
    if (line.find("memfd:lockstep") == std::string::npos) continue;
    std::uint64_t begin = 0, end = 0;
    char dash = 0;
    std::istringstream(line) >> std::hex >> begin >> dash >> end;
    bytes += static_cast<double>(end - begin);
  }
  return bytes / ranks;
}

// Trains two steps: the state of the optimizer is there from the first on. Returns the
// most bytes of parameters that were whole at stage 3;
// `at_end` is called while everything is still there.
double train_few_steps(Communicator& c, const Counted& how,
                       const std::function<void()>& at_end = {}) {
  models::DeferredInit init;
  const auto net = init.build([] { return std::make_shared<TowerImpl>(); });
  const auto mode =
      how.halves ? config::Precision::bf16_params : config::Precision::fp32;
  precision::convert(*net, {mode, torch::kCPU});
  EngineOptions options;
  options.stage = parallel::kStages[static_cast<std::size_t>(how.stage)];
  options.layout.first_bucket_bytes = options.layout.bucket_bytes = 1;  // one a layer
  options.live_buckets = 1;
  options.prefetch_units = 1;
  options.shard_group = how.group;
  for (const auto& layer : net->layers) options.units.push_back(&*layer);
  options.fill = [&](const auto& assign) { init.replay(assign); };
  Engine engine(*net, {c, c}, options);
  parallel::detail::FlatOptimizers optimizers({}, engine, c);
  const auto x = torch::ones({1, kWidth}, net->layers[0]->weight.options());
  for (int step = 0; step < 2; ++step) {
    engine.zero_gradients();
    Tensor loss;
    engine.forward([&] { loss = net->forward(x, engine).sum(); });
    loss.backward();
    engine.finish();
    optimizers.step({.lr = 0.01});
  }
  if (at_end) at_end();
  return static_cast<double>(engine.peak_gathered_bytes());
}

// The ranks are threads, so that what travels is in nobody else's memory.
Seen count_threads(const Counted& how) {
  const memory::MemoryMeter meter(torch::kCPU);
  std::atomic<double> gathered = 0;
  with_communicators(Rig::local, how.ranks,
                     [&](Communicator& c) { gathered = train_few_steps(c, how); });
  return {static_cast<double>(meter.peak_bytes()) / how.ranks, gathered};
}

void expect_within_formula(const Counted& how, const Seen& seen) {
  constexpr double kParameters = kLayers * kWidth * kWidth;
  // A layer in float32 while it is drawn, or its gradient before it is in the bucket;
  // stage 2: the live bucket; stage 3: the live units.
  const double live =
      kWidth * kWidth * 4 + (how.stage >= 2 ? how.layer_bytes() : 0) + seen.gathered;
  constexpr double kActivations = kLayers * 4 * kWidth * 4 + 65536;
  const auto bytes = formula(how);
  EXPECT_LE(seen.bytes, 1.02 * bytes * kParameters + live + kActivations)
      << how.text() << ", " << seen.bytes / kParameters
      << " bytes a parameter; formula " << bytes;
  EXPECT_GE(seen.bytes, 0.98 * bytes * kParameters) << "something was not counted";
  EXPECT_LE(seen.gathered, 3 * how.layer_bytes());
}

// Returns what a plan of the same model says.
planner::MemoryCost predicted(const Counted& how) {
  config::Config config;
  config.parallel.device = config::Device::cpu;
  config.parallel.shard_update = config::ShardUpdate::off;
  config.parallel.live_buckets = 1;
  config.comm.backend = config::CommBackend::gloo;  // which shares nothing
  config.precision.mode =
      how.halves ? config::Precision::bf16_params : config::Precision::fp32;
  config.parallel.bucket_bytes = static_cast<std::int64_t>(how.layer_bytes());
  const auto machine = planner::machine_by_grammar("cpu-16").value();
  run::ModelDescription model;
  model.name = "tower";
  model.units = {
      {.name = "layer", .count = kLayers, .num_parameters = kWidth * kWidth}};
  const auto method =
      how.stage == 0 ? planner::Method::ddp : planner::method_of_stage(how.stage);
  return planner::memory_cost(
      {config, machine, model, {}},
      {.method = method, .ranks = how.ranks, .shard_group = how.group});
}

}  // namespace

class ZeroMemory : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, ZeroMemory, ::testing::Values(2, 3, 4));

// A backend that copies what it sends (gloo) takes more.
TEST_P(ZeroMemory, IsThatOfTheFormulaFromTheFirstMomentOnAndAsPlanned) {
  constexpr double kParameters = kLayers * kWidth * kWidth;
  for (const bool halves : {false, true}) {
    for (const int stage : {0, 1, 2, 3}) {
      const Counted how{.stage = stage, .ranks = GetParam(), .halves = halves};
      const auto seen = count_threads(how);
      expect_within_formula(how, seen);
      const auto plan = predicted(how);
      EXPECT_DOUBLE_EQ(plan.state(), formula(how) * kParameters) << how.text();
      // A plan counts a bucket that fills beside the live one, and two units; it knows
      // nothing of the one gradient or drawn layer of every stage.
      const double planned = plan.state() + plan.buckets;
      EXPECT_LE(seen.bytes,
                1.02 * planned + kWidth * kWidth * 4 + 2 * how.layer_bytes())
          << how.text();
      EXPECT_GE(seen.bytes, 0.98 * planned - 2 * how.layer_bytes()) << how.text();
      RecordProperty(how.text() + "_measured",
                     ::lockstep::str(seen.bytes / kParameters));
      RecordProperty(how.text() + "_planned", ::lockstep::str(planned / kParameters));
    }
  }
}

TEST(ZeroMemoryOfGroups, IsThatOfTheFormulaWithTheRanksOfAGroup) {
  for (const bool halves : {false, true}) {
    for (const int stage : {1, 2, 3}) {
      const Counted how{.stage = stage, .ranks = 4, .group = 2, .halves = halves};
      const auto seen = count_threads(how);
      expect_within_formula(how, seen);
      EXPECT_DOUBLE_EQ(predicted(how).state(),
                       formula(how) * kLayers * kWidth * kWidth);
      RecordProperty(how.text(),
                     ::lockstep::str(seen.bytes / kLayers / kWidth / kWidth));
    }
  }
}

// What ranks share is each one's own part: memory that others have mapped, too. Beside
// it is what a connection takes whatever is trained; stage 3 gathers over one of its
// own.
void expect_within_formula_over_shm(Communicator& c, const Counted& how,
                                    double connection) {
  const auto before = shared_bytes(how.ranks);
  const memory::MemoryMeter meter(torch::kCPU);
  double shared = 0;
  Seen seen;
  seen.gathered =
      train_few_steps(c, how, [&] { shared = shared_bytes(how.ranks) - before; });
  if (how.stage == 3) shared -= connection;
  seen.bytes = static_cast<double>(meter.peak_bytes()) + shared;
  expect_within_formula(how, seen);
  EXPECT_GT(shared, 0) << how.text();
  if (c.rank() > 0) return;
  std::cout << how.text() << ": " << seen.bytes / kLayers / kWidth / kWidth
            << " bytes a parameter, of which " << shared / kLayers / kWidth / kWidth
            << " are shared" << std::endl;  // before the process ends
}

TEST(ZeroMemoryOverShm, IsThatOfTheFormulaWithWhatIsShared) {
  for (const int ranks : {2, 3, 4}) {
    with_communicators(Rig::shm_processes, ranks, [&](Communicator& c) {
      const auto connection = shared_bytes(ranks);
      for (const int stage : {0, 1, 2, 3}) {
        expect_within_formula_over_shm(c, {.stage = stage, .ranks = ranks}, connection);
        if (ranks > 2) continue;  // what is shared does not depend on the precision
        expect_within_formula_over_shm(
            c, {.stage = stage, .ranks = ranks, .halves = true}, connection);
      }
    });
  }
}

}  // namespace lockstep::test::units
