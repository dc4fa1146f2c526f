// Every stage of ZeRO trains to the parameters of PyTorch's ZeroRedundancyOptimizer and
// FSDP2.
#include "lockstep/base/files.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/parallel/full_tensors.h"
#include "lockstep/parallel/update.h"
#include "lockstep/precision/loss_scaler.h"
#include "lockstep/precision/policy.h"
#include "tests/parallel/unit_rig.h"
#include "tests/support/oracle.h"

namespace lockstep::test::units {
namespace {

// The same net is in tests/oracle/zero.py.
struct OracleBlockImpl : torch::nn::Module {
  OracleBlockImpl() {
    up = register_module("up", torch::nn::Linear(kWide, 2 * kWide));
    down = register_module("down", torch::nn::Linear(2 * kWide, kWide));
  }
  Tensor forward(const Tensor& x) {
    return x + down->forward(torch::tanh(up->forward(x)));
  }
  torch::nn::Linear up{nullptr}, down{nullptr};
};
TORCH_MODULE(OracleBlock);

struct OracleNetImpl : torch::nn::Module {
  OracleNetImpl() {
    first = register_module("first", torch::nn::Linear(kWide, kWide));
    for (int i = 0; i < 3; ++i) {
      blocks.push_back(register_module(::lockstep::str("block", i), OracleBlock()));
    }
  }
  Tensor forward(const Tensor& x, Engine* engine) {
    auto h = first->forward(x);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      h = engine->run_unit(
          i, [&](const Tensor& in) { return blocks[i]->forward(in); }, h);
    }
    return h.to(torch::kFloat32);
  }
  std::vector<const torch::nn::Module*> units() const {
    std::vector<const torch::nn::Module*> all;
    for (const auto& block : blocks) all.push_back(&*block);
    return all;
  }
  torch::nn::Linear first{nullptr};
  std::vector<OracleBlock> blocks;
};
TORCH_MODULE(OracleNet);

Tensor find_state(const optim::NamedTensors& state, const std::string& wanted) {
  for (const auto& [name, tensor] : state) {
    if (name == wanted) return tensor;
  }
  throw std::out_of_range(wanted);
}

constexpr std::int64_t kBatch = 8;
const config::OptimConfig kOptim{.lr = 1e-2, .weight_decay = 0.1};

void train_for_oracle(Communicator& c, int stage, const files::Path& file) {
  const auto x = torch::randn({10, kBatch, kWide}, at::detail::createCPUGenerator(4));
  auto net = make_seeded<OracleNet>(1);
  checkpoint::NamedTensors tensors{{"x", x}};
  for (const auto& item : net->named_parameters()) {
    tensors.emplace_back("start." + item.key(), item.value().detach().clone());
  }
  EngineOptions options;
  options.stage = parallel::kStages[static_cast<std::size_t>(stage)];
  options.units = net->units();
  Engine engine(*net, {c, c}, options);
  std::vector<std::unique_ptr<optim::Optimizer>> adamw;
  for (std::size_t i = 0; i < engine.owned().size(); ++i) {
    adamw.push_back(optim::make_optimizer(kOptim, engine.owned_values(i)));
  }
  for (std::int64_t step = 0; step < x.size(0); ++step) {
    engine.zero_gradients();
    Tensor loss;
    engine.forward(
        [&] { loss = net->forward(share(c, x[step]), &engine).pow(2).sum() / kBatch; });
    loss.backward();
    engine.finish();
    for (std::size_t i = 0; i < adamw.size(); ++i) {
      parallel::update(engine, {*adamw[i], {.lr = kOptim.lr}, i});
    }
    engine.wait_for_values();
  }
  for (const auto& parameter : engine.parameters()) {
    tensors.emplace_back("end." + parameter.name,
                         parallel::full_parameter(engine, parameter.name));
  }
  if (c.rank() == 0) checkpoint::write_safetensors(file, tensors);
}

// The same with parameters in fp16, whose loss is scaled. The end is that of the fp32
// copies.
void train_in_fp16(Communicator& c, int stage, const files::Path& file) {
  const auto x = torch::randn({30, kBatch, kWide}, at::detail::createCPUGenerator(4));
  auto net = make_seeded<OracleNet>(1);
  checkpoint::NamedTensors tensors{{"x", x}};
  for (const auto& item : net->named_parameters()) {
    tensors.emplace_back("start." + item.key(), item.value().detach().clone());
  }
  precision::convert(*net, {config::Precision::fp16_params, torch::kCPU});
  EngineOptions options;
  options.stage = parallel::kStages[static_cast<std::size_t>(stage)];
  options.units = net->units();
  Engine engine(*net, {c, c}, options);
  parallel::detail::FlatOptimizers optimizers({kOptim, {}}, engine, c);
  precision::LossScaler scaler({.mode = config::Precision::fp16_params,
                                .initial_scale = 1 << 20,
                                .growth_interval = 4});
  std::vector<double> scales;
  for (std::int64_t step = 0; step < x.size(0); ++step) {
    scales.push_back(scaler.scale());
    engine.zero_gradients();
    Tensor loss;
    engine.forward([&] {
      const auto own = share(c, x[step]).to(torch::kFloat16);
      loss = net->forward(own, &engine).pow(2).sum() / kBatch;
    });
    (loss * scaler.scale()).backward();
    engine.finish();
    const auto done = optimizers.step(
        {.lr = kOptim.lr, .loss_scale = scaler.scale(), .skips_nonfinite = true});
    scaler.update(done.skipped);
  }
  tensors.emplace_back("scales", torch::tensor(scales, torch::kFloat64));
  for (std::size_t i = 0; i < engine.parameters().size(); ++i) {
    const auto master = [&](std::size_t piece) {
      return find_state(optimizers.piece_state(piece), "master");
    };
    tensors.emplace_back("end." + engine.parameters()[i].name,
                         parallel::full_tensor(engine, i, master));
  }
  if (c.rank() == 0) checkpoint::write_safetensors(file, tensors);
}

}  // namespace

TEST(ZeroOracle, Fp16ParametersFollowPyTorchsWithCopiesThatAreWrittenOut) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  std::vector<std::string> arguments{::lockstep::str(kOptim.lr),
                                     ::lockstep::str(kOptim.weight_decay), "2"};
  for (const int stage : {0, 1, 2, 3}) {
    const auto file = folder.path() / ::lockstep::str("stage", stage, ".safetensors");
    with_communicators(Rig::gloo_processes, 2,
                       [&](Communicator& c) { train_in_fp16(c, stage, file); });
    arguments.push_back(file.string());
  }
  expect_oracle_agrees("fp16_params.py", arguments);
}

TEST(ZeroOracle, ParametersAreThoseOfPyTorchAfterTenSteps) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  std::vector<std::string> command{oracle_python(),
                                   "-m",
                                   "torch.distributed.run",
                                   "--standalone",
                                   "--nproc-per-node",
                                   "2",
                                   fixture("oracle/zero.py").string(),
                                   ::lockstep::str(kOptim.lr),
                                   ::lockstep::str(kOptim.weight_decay)};
  for (const int stage : {1, 2, 3}) {
    const auto file = folder.path() / ::lockstep::str("stage", stage, ".safetensors");
    with_communicators(Rig::gloo_processes, 2,
                       [&](Communicator& c) { train_for_oracle(c, stage, file); });
    command.push_back(file.string());
  }
  const auto output = process::run({.arguments = command}, std::chrono::minutes(3));
  EXPECT_TRUE(output.end.ok()) << output.out << output.err;
}

}  // namespace lockstep::test::units
