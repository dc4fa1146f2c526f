// How fast is data parallelism on CPUs, one thread a rank?
//
//   bench_ddp step     one training step: forward, backward, exchange, AdamW
//   bench_ddp overlap  the same with and without the exchange in turn, and the exchange
//                      alone: how much of it does a step see?
//   bench_ddp overhead the engine at one rank against a plain step, in turn
//   bench_ddp reduce   isolated all-reduces of several sizes: what `modelled` is fitted
//                      on
//
// Words `name=value` follow: model (cnn, mlp), batch (of a rank), steps, ranks, backend
// (gloo, shm, modelled; none: FlatParameters and no engine), bucket and first (bytes),
// buckets, and for the modelled network modelled_ranks, latency (seconds), bandwidth
// (bytes/s), busy (1: it uses the core). Prints one JSON line.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "benchmarks/flat_parameters.h"
#include "benchmarks/support.h"
#include "benchmarks/words.h"
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <ATen/ops/_fused_adamw.h>
#include <torch/torch.h>

#include "lockstep/base/memory.h"
#include "lockstep/comm/join.h"
#include "lockstep/comm/local.h"
#include "lockstep/launcher/port.h"
#include "lockstep/models/model.h"
#include "lockstep/optim/optimizer.h"
#include "lockstep/parallel/engine.h"

using namespace lockstep;  // NOLINT: a program of one file

namespace {

using Steady = std::chrono::steady_clock;

double seconds_since(Steady::time_point begin) {
  return std::chrono::duration<double>(Steady::now() - begin).count();
}

double seconds_of(const std::function<void()>& body) {
  const auto begin = Steady::now();
  body();
  return seconds_since(begin);
}

double least(const std::vector<double>& values) {
  return *std::min_element(values.begin(), values.end());
}

// On a modelled network every process is rank 0 of its own: `ranks` of them compute at
// the same time, as the real ones do, and only what they exchange is modelled.
comm::World join(int rank, int port, const Words& words) {
  const auto backend = words.text("backend", "shm");
  const auto ranks = static_cast<int>(words.whole("ranks", 2));
  config::CommConfig config;
  if (backend != "modelled") {
    config.backend =
        backend == "gloo" ? config::CommBackend::gloo : config::CommBackend::shm;
    return comm::join(environment(rank, ranks, port), {.config = config});
  }
  config.backend = config::CommBackend::modelled;
  config.modelled_ranks = words.whole("modelled_ranks", ranks);
  config.modelled_latency_us = 1e6 * words.number("latency", 20e-6);
  config.modelled_bandwidth = words.whole("bandwidth", 12'500'000'000);
  config.modelled_busy = words.whole("busy", 0) != 0;
  return comm::join(environment(0, 1, port), {.config = config});
}

// A model and one fixed batch of it.
struct Task {
  explicit Task(const Words& words) : batch(words.whole("batch", 128)) {
    torch::manual_seed(0);
    const bool cnn = words.text("model", "cnn") == "cnn";
    const models::Shape shape{
        cnn ? std::vector<std::int64_t>{1, 28, 28} : std::vector<std::int64_t>{1024},
        10};
    model = cnn ? models::build({.name = "cnn"}, shape)
                : models::build({.name = "mlp", .hidden = 1024, .layers = 8}, shape);
    for (auto& parameter : model->parameters()) {
      if (parameter.dim() != 4) continue;
      parameter.set_data(parameter.detach().contiguous(model->memory_format()));
    }
    auto sizes = shape.input;
    sizes.insert(sizes.begin(), batch);
    inputs = torch::randn(sizes);
    if (cnn) inputs = inputs.contiguous(model->memory_format());
    targets = torch::randint(10, {batch}, torch::kInt64);
  }

  // A sum over the samples of this rank, divided by the number of those of all.
  torch::Tensor loss(int ranks) const {
    const auto sum = torch::cross_entropy_loss(model->forward(inputs), targets,
                                               /*weight=*/{}, at::Reduction::Sum);
    return sum / static_cast<double>(batch * ranks);
  }

  std::int64_t batch;
  std::shared_ptr<models::Model> model;
  torch::Tensor inputs, targets;
};

// A rank that trains with the engine.
class Rank {
 public:
  Rank(const Words& words, comm::World& world)
      : task(words),
        ranks_(world.data().size()),
        engine(
            *task.model, world,
            {.stage =
                 parallel::kStages[static_cast<std::size_t>(words.whole("stage", 0))],
             .layout = {words.whole("first", 1 << 20), words.whole("bucket", 25 << 20),
                        words.whole("buckets", 8)}}) {
    task.loss(ranks_).backward();  // after it the buffers are laid out for good
    for (const auto& shard : engine.owned()) {
      optimizers_.push_back(
          optim::make_optimizer({}, shard.of(engine.values(shard.group))));
    }
  }

  void step(bool exchanged = true) {
    engine.zero_gradients();
    if (exchanged) {
      task.loss(ranks_).backward();
    } else {
      const auto scope = engine.no_sync();
      task.loss(ranks_).backward();
    }
    for (std::size_t i = 0; i < optimizers_.size(); ++i) {
      const auto& shard = engine.owned()[i];
      auto values = shard.of(engine.values(shard.group));
      auto gradients = shard.of(engine.gradients(shard.group));
      optimizers_[i]->step(values, gradients, 1e-3);
      engine.updated(i);
    }
    engine.wait_for_values();
  }

  Task task;

 private:
  int ranks_;

 public:
  parallel::Engine engine;

 private:
  std::vector<std::unique_ptr<optim::Optimizer>> optimizers_;  // as engine.owned()
};

// Of all threads of this rank: what a step costs where others want the cores, too.
double cpu_seconds() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

void print_step(const Words& words, int ranks, const std::string& backend,
                const std::vector<double>& times, double cpu, double waited,
                double ready) {
  const auto batch = static_cast<double>(words.whole("batch", 128));
  fmt::print(
      "{{\"who\": \"lockstep\", \"backend\": \"{}\", \"model\": \"{}\", \"ranks\": {}, "
      "\"ms\": {:.3f}, \"least_ms\": {:.3f}, \"cpu_ms\": {:.3f}, \"waited_ms\": "
      "{:.3f}, \"ready_ms\": {:.3f}, \"samples_s\": {:.1f}}}\n",
      backend, words.text("model", "cnn"), ranks, 1e3 * median(times),
      1e3 * least(times), 1e3 * cpu / static_cast<double>(times.size()), 1e3 * waited,
      1e3 * ready, ranks * batch / median(times));
}

constexpr int kWarmUp = 4;

void step_with_engine(int rank, int port, const Words& words) {
  auto world = join(rank, port, words);
  Rank trained(words, world);
  std::vector<double> times, waited, ready;
  double cpu_begin = 0;
  for (int i = 0; i < words.whole("steps", 40) + kWarmUp; ++i) {
    if (i == kWarmUp) cpu_begin = cpu_seconds();
    const double seconds = seconds_of([&] { trained.step(); });
    if (i < kWarmUp) continue;
    times.push_back(seconds);
    waited.push_back(trained.engine.host_times().waited);
    ready.push_back(trained.engine.host_times().last_ready);
  }
  if (rank == 0) {
    print_step(words, world.data().size(), std::string(world.data().backend()), times,
               cpu_seconds() - cpu_begin, median(waited), median(ready));
  }
  world.close();
}

// What `single` does: no engine, no other rank.
void step_alone(const Words& words) {
  const Task task(words);
  bench::FlatParameters parameters(*task.model);
  const auto optimizer = optim::make_optimizer({}, parameters.values());
  std::vector<double> times;
  double cpu_begin = 0;
  for (int i = 0; i < words.whole("steps", 40) + kWarmUp; ++i) {
    if (i == kWarmUp) cpu_begin = cpu_seconds();
    const double seconds = seconds_of([&] {
      parameters.zero_gradients();
      task.loss(1).backward();
      optimizer->step(parameters.values(), parameters.gradients(), 1e-3);
    });
    if (i >= kWarmUp) times.push_back(seconds);
  }
  print_step(words, 1, "none", times, cpu_seconds() - cpu_begin, 0, 0);
}

// With the exchange, without it, and the exchange alone, in turn.
void overlap(int rank, int port, const Words& words) {
  auto world = join(rank, port, words);
  Rank trained(words, world);
  std::vector<torch::Tensor> buckets;
  for (const auto& bucket : trained.engine.layout()[0].buckets) {
    buckets.push_back(
        trained.engine.gradients(0).narrow(0, bucket.begin, bucket.end - bucket.begin));
  }
  std::vector<double> with, without, alone, waited;
  for (int i = 0; i < words.whole("steps", 40) + kWarmUp; ++i) {
    world.data().barrier();
    const double a = seconds_of([&] { trained.step(true); });
    const double wait = trained.engine.host_times().waited;
    world.data().barrier();
    const double b = seconds_of([&] { trained.step(false); });
    world.data().barrier();
    const double c = seconds_of([&] {
      std::vector<comm::Pending> pending;
      for (const auto& bucket : buckets) {
        pending.push_back(world.data().all_reduce(bucket));
      }
      for (auto& one : pending) one.wait();
    });
    if (i < kWarmUp) continue;
    with.push_back(a);
    without.push_back(b);
    alone.push_back(c);
    waited.push_back(wait);
  }
  if (rank == 0) {
    const double hidden_not = median(with) - median(without);
    fmt::print(
        "{{\"backend\": \"{}\", \"model\": \"{}\", \"with_ms\": {:.3f}, "
        "\"without_ms\": {:.3f}, \"alone_ms\": {:.3f}, \"waited_ms\": {:.3f}, "
        "\"exposed\": {:.3f}, \"waited_share\": {:.3f}}}\n",
        world.data().backend(), words.text("model", "cnn"), 1e3 * median(with),
        1e3 * median(without), 1e3 * median(alone), 1e3 * median(waited),
        hidden_not / median(alone), median(waited) / median(alone));
  }
  world.close();
}

// What a modelled network is fitted on: buffers like those of the engine, alone.
void reduce(int rank, int port, const Words& words) {
  auto world = join(rank, port, words);
  auto& data = world.data();
  std::string line;
  for (std::int64_t elements = 1 << 10; elements <= 1 << 23; elements *= 2) {
    const auto buffer = data.empty_buffer(elements, torch::kFloat32).fill_(1);
    std::vector<double> times;
    for (int i = 0; i < words.whole("steps", 40) + kWarmUp; ++i) {
      data.barrier();
      const double time = seconds_of([&] { data.all_reduce(buffer).wait(); });
      if (i >= kWarmUp) times.push_back(time);
      buffer.fill_(1);
    }
    line += fmt::format("{}[{}, {:.9f}, {:.9f}]", line.empty() ? "" : ", ",
                        4 * elements, median(times), least(times));
  }
  if (rank == 0) {
    fmt::print("{{\"backend\": \"{}\", \"ranks\": {}, \"seconds\": [{}]}}\n",
               data.backend(), data.size(), line);
  }
  world.close();
}

// Layers of 50 x 50 without bias: 10 kB a parameter.
torch::nn::Sequential chain(std::int64_t layers) {
  torch::manual_seed(0);
  torch::nn::Sequential net;
  for (std::int64_t i = 0; i < layers; ++i) {
    net->push_back(
        torch::nn::Linear(torch::nn::LinearOptions(50, 50).bias(/*bias=*/false)));
  }
  return net;
}

// As a PyTorch user writes it: gradients of their own, a fused AdamW over the list.
class PlainStep {
 public:
  explicit PlainStep(std::int64_t layers) : net_(chain(layers)) {
    values_ = net_->parameters();
    for (const auto& value : values_) {
      mean_.push_back(torch::zeros_like(value));
      square_.push_back(torch::zeros_like(value));
      steps_.push_back(torch::zeros({}));
    }
  }

  void operator()(const torch::Tensor& x) {
    for (auto& value : values_) value.mutable_grad().reset();
    net_->forward(x).sum().backward();
    const torch::NoGradGuard no_grad;
    std::vector<torch::Tensor> gradients;
    for (auto& value : values_) gradients.push_back(value.grad());
    for (auto& step : steps_) step += 1;
    at::_fused_adamw_(values_, gradients, mean_, square_, {}, steps_, 1e-3, 0.9, 0.999,
                      0.01, 1e-8, /*amsgrad=*/false, /*maximize=*/false);
  }

 private:
  torch::nn::Sequential net_;
  std::vector<torch::Tensor> values_, mean_, square_, steps_;
};

void overhead(const Words& words) {
  const auto layers = words.whole("layers", 200);
  const auto x = torch::randn({words.whole("batch", 64), 50});
  PlainStep plain(layers);

  auto single = chain(layers);
  bench::FlatParameters flat(*single);
  const auto of_single = optim::make_optimizer({}, flat.values());

  auto net = chain(layers);
  const auto alone = comm::make_local({torch::kCPU});
  parallel::Engine engine(*net, {*alone[0], *alone[0]});
  net->forward(x).sum().backward();
  const auto of_engine = optim::make_optimizer({}, engine.values(0));

  std::vector<double> of_plain, of_flat, with_engine;
  for (int i = 0; i < words.whole("steps", 400) + kWarmUp; ++i) {
    const double a = seconds_of([&] { plain(x); });
    const double b = seconds_of([&] {
      flat.zero_gradients();
      single->forward(x).sum().backward();
      of_single->step(flat.values(), flat.gradients(), 1e-3);
    });
    const double c = seconds_of([&] {
      engine.zero_gradients();
      net->forward(x).sum().backward();
      of_engine->step(engine.values(0), engine.gradients(0), 1e-3);
    });
    if (i < kWarmUp) continue;
    of_plain.push_back(a);
    of_flat.push_back(b);
    with_engine.push_back(c);
  }
  fmt::print(
      "{{\"parameters\": {}, \"plain_ms\": {:.4f}, \"single_ms\": {:.4f}, "
      "\"engine_ms\": {:.4f}, \"engine_to_plain\": {:.4f}, \"engine_to_single\": "
      "{:.4f}, \"least_to_plain\": {:.4f}, \"least_to_single\": {:.4f}}}\n",
      layers, 1e3 * median(of_plain), 1e3 * median(of_flat), 1e3 * median(with_engine),
      median(with_engine) / median(of_plain), median(with_engine) / median(of_flat),
      least(with_engine) / least(of_plain), least(with_engine) / least(of_flat));
}

// Each in a session of its own, as torchrun's workers are: Linux shares the cores
// between sessions, so with one for all ranks they would get less where others compute.
void as_processes(int ranks, const std::function<void(int)>& body) {
  ::setsid();
  for (int rank = 1; rank < ranks; ++rank) {
    if (::fork() != 0) continue;
    ::setsid();
    body(rank);
    std::fflush(nullptr);
    ::_exit(0);
  }
  body(0);
  while (::wait(nullptr) > 0) {
  }
}

}  // namespace

int main(int argc, char** argv) {
  keep_freed_memory();  // as every worker does
  const std::string what = argc < 2 ? "step" : argv[1];
  const Words words(argc, argv);
  at::set_num_threads(1);
  if (what == "overhead") {
    overhead(words);
  } else if (words.text("backend", "shm") == "none") {
    step_alone(words);
  } else {
    const int port = launcher::HeldPort::any().port();
    as_processes(static_cast<int>(words.whole("ranks", 2)), [&](int rank) {
      at::set_num_threads(1);
      const auto program = what == "overlap"  ? overlap
                           : what == "reduce" ? reduce
                                              : step_with_engine;
      program(rank, port, words);
    });
  }
}
