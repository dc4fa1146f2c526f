// What does ddp cost on one GPU, where there is nobody to exchange with? A step of
// ResNet-50 with the strategies `single` and `ddp` in turn, in bf16 autocast and
// channels-last. Prints one JSON line.
//
//   bench_ddp_gpu [BATCH] [IMAGE] [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include <fmt/format.h>

#include <ATen/Context.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

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

struct Trainer {
  Trainer(config::Strategy kind, const torch::Device& device)
      : world(comm::join({}, {.device = device})) {
    net.to(device);
    for (auto& p : net.parameters()) {
      if (p.dim() == 4)
        p.set_data(p.detach().contiguous(at::MemoryFormat::ChannelsLast));
    }
    config::Config config;
    config.parallel.strategy = kind;
    config.parallel.broadcast_buffers = false;
    config.optim.name = config::Optimizer::sgd;
    strategy = parallel::make_strategy(config, net, world);
  }
  void step(const torch::Tensor& x, const torch::Tensor& y,
            const precision::Policy& policy) {
    strategy->begin_step();
    torch::Tensor logits;
    strategy->forward([&] {
      const precision::AutocastScope autocast(policy);
      logits = net.layers->forward(x);
    });
    strategy->backward(torch::cross_entropy_loss(logits.to(torch::kFloat32), y), true);
    strategy->finish();
    strategy->update(0.01);
  }

  comm::World world;
  ResNet50 net;
  std::unique_ptr<parallel::Strategy> strategy;
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
  Trainer single(config::Strategy::single, device);
  Trainer ddp(config::Strategy::ddp, device);

  constexpr int kSteps = 10;  // of a round
  const auto seconds_of = [&](Trainer& trainer) {
    torch::cuda::synchronize();
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < kSteps; ++i) trainer.step(x, y, policy);
    torch::cuda::synchronize();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
        .count();
  };
  seconds_of(single), seconds_of(ddp);
  seconds_of(single), seconds_of(ddp);
  std::vector<double> alone, together, ratios;
  for (int round = 0; round < rounds; ++round) {
    // Which comes first changes, so that a clock that drifts favours nobody.
    const bool flip = round % 2 == 1;
    const auto first = seconds_of(flip ? ddp : single);
    const auto second = seconds_of(flip ? single : ddp);
    alone.push_back((flip ? second : first) / kSteps);
    together.push_back((flip ? first : second) / kSteps);
    ratios.push_back(together.back() / alone.back());
  }
  const auto median = [](std::vector<double> values) {
    std::sort(values.begin(), values.end());
    return values[values.size() / 2];
  };
  fmt::print(
      "{{\"model\":\"resnet50\",\"batch\":{},\"image\":{},\"ddp_over_single\":{:.4f},"
      "\"single_ms\":{:.3f},\"ddp_ms\":{:.3f},\"rounds\":{}}}\n",
      batch, image, median(ratios), 1e3 * median(alone), 1e3 * median(together),
      rounds);
  return 0;
}
