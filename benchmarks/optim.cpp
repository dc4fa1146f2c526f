// AdamW over one flat buffer on the CPU: ours, LibTorch's fused operator and
// torch::optim::AdamW, in turn, against the speed of memory.
//
//   bench_optim [millions of parameters] [rounds] [threads]
//
// The floor moves the same bytes with next to no arithmetic: four buffers are read and
// three of them written in place, 28 bytes a parameter. A second one only reads and
// writes one buffer of the same total size.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>

#include "benchmarks/support.h"

#include <ATen/Parallel.h>
#include <ATen/ops/_fused_adamw.h>

#include "lockstep/kernels/workers.h"
#include "lockstep/optim/optimizer.h"

namespace lockstep {
namespace {

constexpr std::int64_t kPiece = 4096;
constexpr double kBytes = 28;  // moved for a parameter by an update

struct Buffers {
  torch::Tensor values, gradients, mean, square;

  explicit Buffers(std::int64_t n)
      : values(torch::randn({n})),
        gradients(torch::randn({n})),
        mean(torch::zeros({n})),
        square(torch::zeros({n})) {}
};

double seconds(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin)
      .count();
}

// As little arithmetic as keeps the compiler from leaving something out.
void stream_all(Buffers& b, kernels::Workers& workers) {
  float* __restrict x = b.values.data_ptr<float>();
  float* __restrict y = b.mean.data_ptr<float>();
  float* __restrict z = b.square.data_ptr<float>();
  const float* __restrict g = b.gradients.data_ptr<float>();
  workers.run([&](std::int64_t begin, std::int64_t end) {
    for (auto i = begin * kPiece; i < end * kPiece; ++i) {
      x[i] += g[i];
      y[i] += g[i];
      z[i] += g[i];
    }
  });
}

struct Contender {
  const char* name;
  std::function<void()> step;
  double bytes = kBytes;  // a parameter
  std::vector<double> times = {};
};

std::vector<Contender> contenders(std::int64_t n, std::vector<Buffers>& buffers,
                                  kernels::Workers& workers) {
  for (int i = 0; i < 3; ++i) buffers.emplace_back(n);
  std::shared_ptr<optim::Optimizer> ours = optim::make_optimizer({}, buffers[0].values);
  auto& fused = buffers[1];
  const auto count = torch::zeros({});
  auto parameter = buffers[2].values.clone().requires_grad_();
  parameter.mutable_grad() = buffers[2].gradients;
  auto theirs = std::make_shared<torch::optim::AdamW>(
      std::vector<torch::Tensor>{parameter}, torch::optim::AdamWOptions(1e-3));
  auto& raw = buffers[2];
  return {
      {"ours",
       [&buffers, ours] { ours->step(buffers[0].values, buffers[0].gradients, 1e-3); }},
      {"at::_fused_adamw_",
       [&fused, count] {
         count.add_(1);
         std::vector<torch::Tensor> v{fused.values}, g{fused.gradients}, m{fused.mean},
             s{fused.square};
         at::_fused_adamw_(v, g, m, s, {}, {count}, 1e-3, 0.9, 0.999, 0.01, 1e-8, false,
                           false);
       }},
      {"streaming, 4 in, 3 out", [&raw, &workers] { stream_all(raw, workers); }},
      {"streaming, in place", [&raw] { raw.mean.mul_(1.0001); }, 8},
      {"torch::optim::AdamW", [theirs] { theirs->step(); }}};
}

double best(const Contender& c) {
  return *std::min_element(c.times.begin(), c.times.end());
}

void measure(std::int64_t n, int rounds) {
  std::vector<Buffers> buffers;
  buffers.reserve(3);
  kernels::Workers workers(n / kPiece, 8);
  auto all = contenders(n, buffers, workers);
  for (auto& c : all) c.step();
  for (int round = 0; round < rounds; ++round) {
    for (auto& c : all) c.times.push_back(seconds(c.step));
  }
  const auto rate = [&](const Contender& c, double time) {
    return c.bytes * static_cast<double>(n) / time / 1e9;
  };
  std::printf("%-24s %10s %10s %10s\n", "", "median ms", "best ms", "best GB/s");
  for (const auto& c : all) {
    std::printf("%-24s %10.1f %10.1f %10.1f\n", c.name, median(c.times) * 1e3,
                best(c) * 1e3, rate(c, best(c)));
  }
  const auto ratio = [&](double other, double own) { return other / own; };
  std::printf("of streaming bandwidth:      median %.2f, best %.2f\n",
              ratio(median(all[2].times), median(all[0].times)),
              ratio(best(all[2]), best(all[0])));
  std::printf("over at::_fused_adamw_:      median %.2f, best %.2f\n",
              ratio(median(all[1].times), median(all[0].times)),
              ratio(best(all[1]), best(all[0])));
  std::printf("over torch::optim::AdamW:    median %.2f, best %.2f\n",
              ratio(median(all[4].times), median(all[0].times)),
              ratio(best(all[4]), best(all[0])));
}

int run(int argc, char** argv) {
  const auto number = [&](int at, int standard) {
    return argc > at ? std::atoi(argv[at]) : standard;
  };
  const auto n = std::int64_t{number(1, 64)} * 1024 * 1024;
  const int rounds = number(2, 9);
  if (argc > 3) at::set_num_threads(number(3, 1));
  std::printf("AdamW, %lld parameters, float32, %d threads, %d rounds in turn\n",
              static_cast<long long>(n), at::get_num_threads(), rounds);
  const torch::NoGradGuard no_grad;
  measure(n, rounds);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::run(argc, argv);
}
