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

#include <fmt/format.h>

#include <ATen/Context.h>
#include <torch/torch.h>

#include "lockstep/optim/flat_parameters.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/strategy.h"
#include "lockstep/precision/policy.h"

using namespace lockstep;  // NOLINT: a program of one file
namespace nn = torch::nn;

namespace {

nn::Conv2d conv(std::int64_t in, std::int64_t out, std::int64_t size,
                std::int64_t stride = 1) {
  return nn::Conv2d(
      nn::Conv2dOptions(in, out, size).stride(stride).padding(size / 2).bias(false));
}

// 1x1, 3x3 and 1x1 convolutions beside a shortcut.
struct BottleneckImpl : nn::Module {
  BottleneckImpl(std::int64_t in, std::int64_t width, std::int64_t stride) {
    const auto out = 4 * width;
    body = register_module(
        "body",
        nn::Sequential(conv(in, width, 1), nn::BatchNorm2d(width),
                       nn::ReLU(nn::ReLUOptions(true)), conv(width, width, 3, stride),
                       nn::BatchNorm2d(width), nn::ReLU(nn::ReLUOptions(true)),
                       conv(width, out, 1), nn::BatchNorm2d(out)));
    if (stride != 1 || in != out) {
      shortcut = register_module(
          "shortcut", nn::Sequential(conv(in, out, 1, stride), nn::BatchNorm2d(out)));
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto side = shortcut.is_empty() ? x : shortcut->forward(x);
    return body->forward(x).add_(side).relu_();
  }
  nn::Sequential body{nullptr};
  nn::Sequential shortcut{nullptr};
};
TORCH_MODULE(Bottleneck);

struct ResNet50 : nn::Module {
  ResNet50() {
    layers = register_module("layers", nn::Sequential());
    layers->push_back(conv(3, 64, 7, 2));
    layers->push_back(nn::BatchNorm2d(64));
    layers->push_back(nn::ReLU(nn::ReLUOptions(true)));
    layers->push_back(nn::MaxPool2d(nn::MaxPool2dOptions(3).stride(2).padding(1)));
    std::int64_t in = 64;
    const std::int64_t depths[] = {3, 4, 6, 3};
    for (int stage = 0; stage < 4; ++stage) {
      const std::int64_t width = 64 << stage;
      for (std::int64_t i = 0; i < depths[stage]; ++i) {
        layers->push_back(Bottleneck(in, width, i == 0 && stage > 0 ? 2 : 1));
        in = 4 * width;
      }
    }
    layers->push_back(nn::AdaptiveAvgPool2d(nn::AdaptiveAvgPool2dOptions(1)));
    layers->push_back(nn::Flatten());
    layers->push_back(nn::Linear(in, 1000));
  }
  nn::Sequential layers{nullptr};
};

void prepare(ResNet50& net, const torch::Device& device) {
  net.to(device);
  for (auto& p : net.parameters()) {
    if (p.dim() == 4) p.set_data(p.detach().contiguous(at::MemoryFormat::ChannelsLast));
  }
}

torch::Tensor loss_of(ResNet50& net, const torch::Tensor& x, const torch::Tensor& y,
                      const precision::Policy& policy) {
  torch::Tensor logits;
  {
    const precision::AutocastScope autocast(policy);
    logits = net.layers->forward(x);
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
  explicit Plain(const torch::Device& device) {
    prepare(net_, device);
    parameters_.emplace(net_);
    optimizer_ = optim::make_optimizer(sgd().optim, parameters_->values());
  }
  void step(const torch::Tensor& x, const torch::Tensor& y,
            const precision::Policy& policy) override {
    parameters_->zero_gradients();
    loss_of(net_, x, y, policy).backward();
    optimizer_->step(parameters_->values(), parameters_->gradients(), 0.01);
  }

 private:
  ResNet50 net_;
  std::optional<optim::FlatParameters> parameters_;
  std::unique_ptr<optim::Optimizer> optimizer_;
};

class Ddp : public Trainer {
 public:
  explicit Ddp(const torch::Device& device)
      : world_(comm::join({}, {.device = device})) {
    prepare(net_, device);
    auto config = sgd();
    config.parallel.strategy = config::Strategy::ddp;
    strategy_ = parallel::make_strategy(config, net_, world_);
  }
  void step(const torch::Tensor& x, const torch::Tensor& y,
            const precision::Policy& policy) override {
    strategy_->begin_step();
    torch::Tensor loss;
    strategy_->forward([&] { loss = loss_of(net_, x, y, policy); });
    strategy_->backward(loss, /*last=*/true);
    strategy_->finish();
    strategy_->update({.lr = 0.01});
  }

 private:
  comm::World world_;
  ResNet50 net_;
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
  Plain plain(device);
  Ddp ddp(device);

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
