// The engine's gradients are those of c10d::Reducer and of PyTorch's DDP.
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "lockstep/base/files.h"
#include "lockstep/checkpoint/safetensors.h"
#include "lockstep/comm/gloo.h"
#include "lockstep/comm/store.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"
#include "tests/comm/ranks.h"
#include "tests/support/oracle.h"

namespace lockstep::test::oracles {

using comm::Communicator;
using parallel::Engine;
using torch::Tensor;

namespace {

// The same nets are in tests/oracle/ddp.py.
struct SmallNet : torch::nn::Module {
  virtual Tensor forward(const Tensor& x) = 0;
};

struct Mlp : SmallNet {
  Mlp() {
    one = register_module("one", torch::nn::Linear(12, 32));
    two = register_module("two", torch::nn::Linear(32, 32));
    three = register_module("three", torch::nn::Linear(32, 4));
  }
  Tensor forward(const Tensor& x) override {
    const auto h = torch::tanh(two->forward(torch::tanh(one->forward(x.flatten(1)))));
    return three->forward(h);
  }
  torch::nn::Linear one{nullptr}, two{nullptr}, three{nullptr};
};

struct ConvNet : SmallNet {
  ConvNet() {
    one = register_module("one", torch::nn::Conv2d(3, 8, 2));
    two = register_module("two", torch::nn::Conv2d(8, 16, 1));
    three = register_module("three", torch::nn::Linear(16, 4));
  }
  Tensor forward(const Tensor& x) override {
    auto h = torch::relu(two->forward(torch::relu(one->forward(x))));
    return three->forward(h.flatten(1));
  }
  torch::nn::Conv2d one{nullptr}, two{nullptr};
  torch::nn::Linear three{nullptr};
};

constexpr std::int64_t kBatch = 12;
constexpr int kSteps = 5;

std::unique_ptr<SmallNet> make_net(const std::string& kind) {
  auto generator = at::detail::getDefaultCPUGenerator();
  generator.set_current_seed(17);
  if (kind == "mlp") return std::make_unique<Mlp>();
  return std::make_unique<ConvNet>();
}

// (steps, batch, ...)
struct Data {
  Tensor x, y;
};

Data make_data() {
  auto generator = at::detail::createCPUGenerator(23);
  return {torch::randn({kSteps, kBatch, 3, 2, 2}, generator),
          torch::randn({kSteps, kBatch, 4}, generator)};
}

// Of this rank's samples: a sum, divided by the number of all.
Tensor loss_of(SmallNet& net, const Data& data, int step, const Communicator& c) {
  const auto share = kBatch / c.size();
  const auto x = data.x[step].narrow(0, c.rank() * share, share);
  const auto y = data.y[step].narrow(0, c.rank() * share, share);
  return (net.forward(x) - y).pow(2).sum() / static_cast<double>(kBatch);
}

// A process group of c10d beside a communicator of ours, over the same store.
struct Groups {
  std::unique_ptr<Communicator> ours;
  c10::intrusive_ptr<c10d::ProcessGroup> theirs;
};

Groups join_both(int rank, int ranks, int port) {
  const auto store = comm::open_store(
      {.environment = environment_of(rank, ranks, port), .file = ""}, kPatience);
  const auto options = [&](const char* prefix) {
    return comm::GroupOptions{
        .store = c10::make_intrusive<c10d::PrefixStore>(prefix, store),
        .rank = rank,
        .size = ranks,
        .timeout = kPatience};
  };
  Groups groups;
  groups.ours = comm::make_gloo(options("ours"));
  const auto theirs = options("theirs");
  groups.theirs = c10::make_intrusive<c10d::ProcessGroup>(theirs.store, rank, ranks);
  groups.theirs->setBackend(torch::kCPU, c10d::ProcessGroup::BackendType::GLOO,
                            comm::make_gloo_group(theirs));
  groups.theirs->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
  return groups;
}

std::unique_ptr<c10d::Reducer> make_reducer(SmallNet& net, const Groups& groups) {
  const auto parameters = net.parameters();
  const std::vector<bool> dense(parameters.size(), false);
  const auto buckets =
      std::get<0>(c10d::compute_bucket_assignment_by_size(parameters, {600, 2000}));
  return std::make_unique<c10d::Reducer>(
      parameters, buckets, groups.theirs, dense, 2000, false, false,
      std::unordered_map<std::size_t, std::string>{}, 600, false, false,
      std::vector<std::int64_t>{});
}

void compare_with_reducer(const std::string& kind, const Groups& groups) {
  const auto data = make_data();
  const auto& c = *groups.ours;
  const auto mine = make_net(kind), other = make_net(kind);
  Engine engine(*mine, {*groups.ours, *groups.ours}, {.layout = {600, 2000}});
  const auto reducer = make_reducer(*other, groups);
  for (int step = 0; step < kSteps; ++step) {
    engine.zero_gradients();
    loss_of(*mine, data, step, c).backward();
    reducer->prepare_for_forward();
    other->zero_grad();
    // It takes the mean over the ranks.
    const auto loss = loss_of(*other, data, step, c) * c.size();
    reducer->prepare_for_backward({});
    loss.backward();
    const auto parameters = mine->parameters(), others = other->parameters();
    for (std::size_t i = 0; i < parameters.size(); ++i) {
      const auto& got = parameters[i].grad();
      const auto& expected = others[i].grad();
      // Two summands and a division by two have one result; with three, both orders
      // and the division round.
      EXPECT_TRUE(c.size() == 2 ? torch::equal(got, expected)
                                : torch::allclose(got, expected, 1e-5, 1e-7))
          << kind << " step " << step << " parameter " << i << "\n"
          << (got - expected).abs().max();
      const torch::NoGradGuard no_grad;
      parameters[i].sub_(got, 0.1);
      others[i].sub_(got, 0.1);
    }
  }
}

// Trains on the ranks; rank 0 leaves start, data and end in the file.
void train_for_oracle(Communicator& c, const std::string& kind,
                      const config::OptimConfig& config, const Path& file) {
  const auto data = make_data();
  const auto net = make_net(kind);
  checkpoint::NamedTensors tensors{{"x", data.x}, {"y", data.y}};
  for (const auto& item : net->named_parameters()) {
    tensors.emplace_back("start." + item.key(), item.value().detach().clone());
  }
  Engine engine(*net, {c, c}, {.layout = {600, 2000}});
  const auto optimizer = optim::make_optimizer(config, engine.values(0));
  for (int step = 0; step < kSteps; ++step) {
    engine.zero_gradients();
    loss_of(*net, data, step, c).backward();
    optimizer->step(engine.values(0), engine.gradients(0), config.lr);
  }
  if (c.rank() != 0) return;
  for (const auto& item : net->named_parameters()) {
    tensors.emplace_back("end." + item.key(), item.value().detach());
  }
  checkpoint::write_safetensors(file, tensors);
}

}  // namespace

TEST(ReducerOracle, GradientsAreThoseOfTheReducer) {
  for (const int ranks : {2, 3}) {
    const int port = free_port();
    as_processes(ranks, [&](int rank) {
      const auto groups = join_both(rank, ranks, port);
      for (const auto* kind : {"mlp", "conv"}) compare_with_reducer(kind, groups);
      groups.ours->barrier();  // rank 0 hosts the store
    });
  }
}

TEST(DdpOracle, ParametersAreThoseOfPyTorchAfterFiveSteps) {
  LOCKSTEP_NEEDS_ORACLE();
  const files::TemporaryDirectory folder;
  const config::OptimConfig common{.lr = 1e-2};
  std::vector<std::string> command{oracle_python(),
                                   "-m",
                                   "torch.distributed.run",
                                   "--standalone",
                                   "--nproc-per-node",
                                   "2",
                                   fixture("oracle/ddp.py").string(),
                                   str(common.lr),
                                   str(common.weight_decay),
                                   str(common.momentum)};
  for (const auto* kind : {"mlp", "conv"}) {
    for (const auto name : {config::Optimizer::sgd, config::Optimizer::adamw}) {
      auto config = common;
      config.name = name;
      const auto file =
          folder.path() / str(kind, ".", config::name_of(name), ".safetensors");
      with_communicators(Rig::gloo_processes, 2, [&](Communicator& c) {
        train_for_oracle(c, kind, config, file);
      });
      command.push_back(file.string());
    }
  }
  const auto output = process::run(
      {.arguments = command, .environment = {{"TMPDIR", folder.path().string()}}},
      std::chrono::seconds(100));
  EXPECT_TRUE(output.end.ok()) << output.out << output.err;
  EXPECT_THAT(output.out, ::testing::HasSubstr("conv.adamw: largest relative"));
  std::cout << output.out;
}

}  // namespace lockstep::test::oracles
