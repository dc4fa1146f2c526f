// What does ddp cost on one GPU, where there is nobody to exchange with? A step of
// ResNet-50 without any engine and with the strategy `ddp` in turn, in bf16 autocast
// and channels-last. Prints one JSON line.
//
//   bench_ddp_gpu [BATCH] [IMAGE] [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <optional>
#include <vector>

#include "benchmarks/flat_parameters.h"
#include <fmt/format.h>

#include <ATen/Context.h>
#include <torch/torch.h>

#include "lockstep/models/model.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/policy.h"

using namespace lockstep;  // NOLINT: a program of one file

namespace {

std::shared_ptr<models::Model> resnet50(std::int64_t image,
                                        const torch::Device& device) {
  auto net = models::build({.name = "resnet50"}, {{3, image, image}, 1000});
  net->to(device);
  for (auto& p : net->parameters()) {
    if (p.dim() == 4) p.set_data(p.detach().contiguous(net->memory_format()));
  }
  return net;
}

torch::Tensor loss_of(models::Model& net, const torch::Tensor& x,
                      const torch::Tensor& y, const precision::Policy& policy) {
  torch::Tensor logits;
  {
    const precision::AutocastScope autocast(policy);
    logits = net.forward(x);
  }
  return torch::cross_entropy_loss(logits.to(torch::kFloat32), y);
}

class Trainer {
 public:
  virtual ~Trainer() = default;
  virtual void step(const torch::Tensor& x, const torch::Tensor& y,
                    const precision::Policy& policy) = 0;
};

config::Config sgd() {
  config::Config config;
  config.parallel.broadcast_buffers = false;
  config.optim.name = config::Optimizer::sgd;
  return config;
}

// No engine: autograd adds to a flat buffer of zeros, which the optimizer uses.
class Plain : public Trainer {
 public:
  explicit Plain(std::shared_ptr<models::Model> net) : net_(std::move(net)) {
    parameters_.emplace(*net_);
    optimizer_ = optim::make_optimizer(sgd().optim, parameters_->values());
  }
  void step(const torch::Tensor& x, const torch::Tensor& y,
            const precision::Policy& policy) override {
    parameters_->zero_gradients();
    loss_of(*net_, x, y, policy).backward();
    optimizer_->step(parameters_->values(), parameters_->gradients(), 0.01);
  }

 private:
  std::shared_ptr<models::Model> net_;
  std::optional<bench::FlatParameters> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

class Ddp : public Trainer {
 public:
  Ddp(std::shared_ptr<models::Model> net, const torch::Device& device)
      : world_(comm::join({}, {.device = device})), net_(std::move(net)) {
    auto config = sgd();
    config.parallel.strategy = config::Strategy::ddp;
    strategy_ = parallel::make_strategy(config, *net_, world_);
  }
  void step(const torch::Tensor& x, const torch::Tensor& y,
            const precision::Policy& policy) override {
    strategy_->begin_step();
    torch::Tensor loss;
    strategy_->forward([&] { loss = loss_of(*net_, x, y, policy); });
    strategy_->backward(loss, /*last=*/true);
    strategy_->finish();
    strategy_->update({.lr = 0.01});
  }

 private:
  comm::World world_;
  std::shared_ptr<models::Model> net_;
  std::unique_ptr<parallel::Strategy> strategy_;
};

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t batch = argc > 1 ? std::atol(argv[1]) : 64;
  const std::int64_t image = argc > 2 ? std::atol(argv[2]) : 224;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : 30;
  const torch::Device device(torch::kCUDA, 0);
  const precision::Policy policy{config::Precision::bf16, device};
  at::globalContext().setBenchmarkCuDNN(true);
  torch::manual_seed(0);
  const auto x = torch::randn({batch, 3, image, image}, device)
                     .contiguous(at::MemoryFormat::ChannelsLast);
  const auto y =
      torch::randint(1000, {batch}, torch::dtype(torch::kInt64).device(device));
  Plain plain(resnet50(image, device));
  Ddp ddp(resnet50(image, device), device);

  constexpr int kSteps = 10;  // of a round
  const auto since = [](std::chrono::steady_clock::time_point begin) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  struct Cost {
    std::vector<double> step, host;  // seconds; host: until all was handed to the GPU
  };
  const auto measure = [&](Trainer& trainer, Cost& cost) {
    torch::cuda::synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) trainer.step(x, y, policy);
    cost.host.push_back(since(begin) / kSteps);
    torch::cuda::synchronize();
    cost.step.push_back(since(begin) / kSteps);
  };
  Cost warm, plain_cost, ddp_cost;
  for (int i = 0; i < 2; ++i) measure(plain, warm), measure(ddp, warm);
  std::vector<double> ratios;
  for (int round = 0; round < rounds; ++round) {
    // Which comes first changes, so that a clock that drifts favours nobody.
    if (round % 2 == 1) measure(ddp, ddp_cost);
    measure(plain, plain_cost);
    if (round % 2 == 0) measure(ddp, ddp_cost);
    ratios.push_back(ddp_cost.step.back() / plain_cost.step.back());
  }
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  fmt::print(
      "{{\"model\":\"resnet50\",\"batch\":{},\"image\":{},\"ddp_over_plain\":{:.4f},"
      "\"plain_ms\":{:.3f},\"ddp_ms\":{:.3f},\"plain_host_ms\":{:.3f},"
      "\"ddp_host_ms\":{:.3f},\"rounds\":{}}}\n",
      batch, image, median(ratios), 1e3 * median(plain_cost.step),
      1e3 * median(ddp_cost.step), 1e3 * median(plain_cost.host),
      1e3 * median(ddp_cost.host), rounds);
  return 0;
}
