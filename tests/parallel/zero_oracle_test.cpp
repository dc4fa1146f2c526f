// Every stage of ZeRO trains to the parameters of PyTorch's ZeroRedundancyOptimizer and
// FSDP2.
#include "lockstep/base/files.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/parallel/full_tensors.h"
#include "lockstep/parallel/update.h"
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
    return h;
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

}  // namespace

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
