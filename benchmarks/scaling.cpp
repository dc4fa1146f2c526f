// What would a step of a large GPT take on many ranks? Modelled: the engine's schedule
// is real, the computing and the network are not.
//
//   bench_scaling [name=value]...
//
// A model with the layers of a GPT, on one CPU rank that stands for the first of
// `ranks`. Every layer's forward and backward pass takes the time that its share of the
// operations has of `step_ms` (a measured step on one GPU, of which the update is taken
// off), and every collective takes latency + bytes / bandwidth on one line, in the
// order in which the engine starts them. What is hidden and what is waited for follows
// from the engine: buckets, units, gathers ahead, the order of the gradients.
//
// Tensors are `shrink` times smaller than the model's, and the network as much slower;
// all times are `stretch` times longer, so that this CPU's own work does not count.
// Not modelled: the multiprocessors that a GPU's collectives take from the kernels
// beside them, ranks of unequal speed, and other traffic.
//
// Words: stages (0123), ranks (8,64,512), layers, hidden, rows, context, tokens (of a
// rank), step_ms, steps, shrink, stretch, node (ranks of a node), inside and across
// (bytes/s of a rank within a node, and of one over several), latency (seconds; a
// collective over N ranks takes ceil(log2 N) of them, an all_reduce twice that), copy
// (bytes/s of the device's memory), first and bucket (bytes). Prints one JSON line for
// each number of ranks and stage.
#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <thread>
#include <vector>

#include "benchmarks/support.h"
#include "benchmarks/words.h"
#include <fmt/format.h>

#include <torch/torch.h>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/comm/local.h"
#include "lockstep/comm/modelled.h"
#include "lockstep/parallel/engine.h"

using namespace lockstep;  // NOLINT: a program of one file

namespace {

using Steady = std::chrono::steady_clock;
using torch::Tensor;

struct Sizes {
  explicit Sizes(const Words& words)
      : layers(words.whole("layers", 48)),
        hidden(words.whole("hidden", 1600)),
        rows(words.whole("rows", 50304)),
        context(words.whole("context", 1024)),
        step(1e-3 * words.number("step_ms", 304.6)),
        shrink(words.number("shrink", 64)),
        stretch(words.number("stretch", 4)),
        copy(words.number("copy", 4.29e12)) {}

  std::int64_t of_layers() const { return layers * 12 * hidden * hidden; }
  std::int64_t parameters() const { return of_layers() + (rows + context) * hidden; }
  // Of a token, a product and its sum being one. Half of the scores are masked.
  double flops() const {
    return static_cast<double>(of_layers() + layers * context * hidden + rows * hidden);
  }
  // Gradients, float copies, two states, and weights of 16 bits, at 90 % of a copy.
  double update_seconds(double elements) const {
    constexpr double kBytes = 2 + 8 + 16 + 2, kReached = 0.9;
    return elements * kBytes / (kReached * copy);
  }
  double compute() const {
    return step - update_seconds(static_cast<double>(parameters()));
  }

  std::int64_t layers, hidden, rows, context;
  double step, shrink, stretch, copy;
};

void pass_time(double seconds) {
  const auto end = Steady::now() + std::chrono::duration_cast<Steady::duration>(
                                       std::chrono::duration<double>(seconds));
  while (Steady::now() < end) std::this_thread::yield();
}

// A layer that takes its time and has a gradient for its weight afterwards.
class Timed : public torch::autograd::Function<Timed> {
 public:
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const Tensor& weight, double seconds) {
    context->saved_data["seconds"] = seconds;
    context->saved_data["numel"] = weight.numel();
    pass_time(seconds);
    return x.clone();
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list gradients) {
    constexpr double kBackward = 2;  // two products for each of the forward pass
    pass_time(kBackward * context->saved_data["seconds"].toDouble());
    const auto numel = context->saved_data["numel"].toInt();
    return {gradients[0], torch::ones({numel}, torch::kBFloat16), Tensor()};
  }
};

// What a layer computes of the whole, in seconds of a forward pass.
class Costs {
 public:
  explicit Costs(const Sizes& sizes) : sizes_(sizes) {}
  double of(double flops_of_token) const {
    constexpr double kForward = 1.0 / 3;
    return kForward * sizes_.stretch * sizes_.compute() * flops_of_token /
           sizes_.flops();
  }

 private:
  const Sizes& sizes_;
};

struct Weights : torch::nn::Module {
  Tensor add(const std::string& name, std::int64_t numel, const Sizes& sizes) {
    const auto small = std::llround(static_cast<double>(numel) / sizes.shrink);
    return register_parameter(name, torch::zeros({small}, torch::kBFloat16));
  }
};

struct Block : Weights {
  explicit Block(const Sizes& sizes) {
    const auto square = sizes.hidden * sizes.hidden;
    const auto attention = static_cast<double>(sizes.context * sizes.hidden);
    const Costs costs(sizes);
    const auto one = [&](const std::string& name, std::int64_t times, double more) {
      weights.push_back(add(name, times * square, sizes));
      seconds.push_back(costs.of(static_cast<double>(times * square) + more));
    };
    one("c_attn", 3, 0);
    one("attn_proj", 1, attention);
    one("c_fc", 4, 0);
    one("mlp_proj", 4, 0);
  }
  Tensor forward(Tensor x) {
    for (std::size_t i = 0; i < weights.size(); ++i) {
      x = Timed::apply(x, weights[i], seconds[i]);
    }
    return x;
  }

  std::vector<Tensor> weights;
  std::vector<double> seconds;
};

struct Gpt : Weights {
  explicit Gpt(const Sizes& sizes) {
    wte = add("wte", sizes.rows * sizes.hidden, sizes);
    wpe = add("wpe", sizes.context * sizes.hidden, sizes);
    for (std::int64_t i = 0; i < sizes.layers; ++i) {
      blocks.push_back(register_module(str("h", i), std::make_shared<Block>(sizes)));
    }
    head = Costs(sizes).of(static_cast<double>(sizes.rows * sizes.hidden));
  }
  Tensor forward(parallel::Engine& engine) {
    auto x = Timed::apply(torch::ones({1}, torch::kBFloat16), wte, 0.0);
    x = Timed::apply(x, wpe, 0.0);
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      x = engine.run_unit(
          i, [&](const Tensor& in) { return blocks[i]->forward(in); }, x);
    }
    return Timed::apply(x, wte, head);
  }
  std::vector<const torch::nn::Module*> units() const {
    std::vector<const torch::nn::Module*> list;
    for (const auto& block : blocks) list.push_back(block.get());
    return list;
  }

  Tensor wte, wpe;
  std::vector<std::shared_ptr<Block>> blocks;
  double head = 0;
};

// Communicators of the same ranks share one modelled line: sums and gathers have the
// bandwidth once. Adds up what passes.
class Line : public comm::Communicator {
 public:
  struct Network {
    explicit Network(const comm::ModelledOptions& its_options)
        : options(its_options), modelled(comm::make_modelled(its_options)) {}
    comm::ModelledOptions options;
    std::unique_ptr<comm::Communicator> modelled;
    double seconds = 0;
    int calls = 0;
  };
  explicit Line(std::shared_ptr<Network> network) : network_(std::move(network)) {}

  int rank() const noexcept override { return 0; }
  int size() const noexcept override { return network_->modelled->size(); }
  std::string_view backend() const noexcept override { return "modelled"; }
  comm::Traits traits() const noexcept override { return network_->modelled->traits(); }
  torch::Device device() const override { return torch::kCPU; }
  comm::Pending start(const comm::Call& call) override {
    network_->seconds += comm::modelled_seconds(call, network_->options);
    ++network_->calls;
    return network_->modelled->start(call);
  }
  std::unique_ptr<comm::Communicator> split(int, int) override {
    return std::make_unique<Line>(network_);
  }
  void abort() noexcept override { network_->modelled->abort(); }

 private:
  std::shared_ptr<Network> network_;
};

comm::ModelledOptions network_of(int ranks, const Sizes& sizes, const Words& words) {
  const bool one_node = ranks <= words.whole("node", 8);
  const double bandwidth =
      one_node ? words.number("inside", 360e9) : words.number("across", 45e9);
  return {.ranks = ranks,
          .tree = true,
          .latency_seconds = sizes.stretch * words.number("latency", 20e-6),
          .bytes_per_second = bandwidth / (sizes.stretch * sizes.shrink)};
}

struct Setting {
  int ranks = 1, stage = 0;
};

void train_step(Gpt& gpt, parallel::Engine& engine, const Sizes& sizes) {
  engine.zero_gradients();
  Tensor loss;
  engine.forward([&] { loss = gpt.forward(engine).sum(); });
  loss.backward();
  engine.finish();
  // As strategies do it: what the next forward pass needs first is in the last bucket.
  for (std::size_t i = engine.owned().size(); i-- > 0;) {
    const auto elements = sizes.shrink * static_cast<double>(engine.owned()[i].size);
    pass_time(sizes.stretch * sizes.update_seconds(elements));
    engine.updated(i);
  }
}

void measure(const Setting& setting, const Sizes& sizes, const Words& words) {
  constexpr int kWarmUp = 2;
  auto network =
      std::make_shared<Line::Network>(network_of(setting.ranks, sizes, words));
  Line line(network);
  const auto cpu = comm::make_local({torch::kCPU});
  Gpt gpt(sizes);
  const auto bytes = [&](const char* name, std::int64_t usual) {
    return std::llround(words.number(name, static_cast<double>(usual)) / sizes.shrink);
  };
  const parallel::LayoutOptions usual;
  constexpr std::int64_t kSmall = 65536;  // parallel.persist_below
  parallel::Engine engine(
      gpt, {line, *cpu[0]},
      {.stage = parallel::kStages[static_cast<std::size_t>(setting.stage)],
       .layout = {bytes("first", usual.first_bucket_bytes),
                  bytes("bucket", usual.bucket_bytes), usual.num_buckets},
       .units = gpt.units(),
       .persist_below = bytes("persist", kSmall)});
  std::vector<double> times;
  const auto steps = words.whole("steps", 5);
  auto begin = Steady::now();
  for (int i = 0; i < steps + kWarmUp; ++i) {
    train_step(gpt, engine, sizes);
    const auto end = Steady::now();
    if (i == kWarmUp - 1) network->seconds = network->calls = 0;
    if (i >= kWarmUp) {
      times.push_back(std::chrono::duration<double>(end - begin).count() /
                      sizes.stretch);
    }
    begin = end;
  }
  engine.wait_for_values();
  double owned = 0;
  for (const auto& shard : engine.owned()) owned += static_cast<double>(shard.size);
  const double computed = sizes.compute() + sizes.update_seconds(sizes.shrink * owned);
  const double passed = network->seconds / sizes.stretch / static_cast<double>(steps);
  const double step = median(times);
  fmt::print(
      "{{\"modelled\": true, \"ranks\": {}, \"stage\": {}, \"step_ms\": {:.2f}, "
      "\"least_ms\": {:.2f}, \"compute_ms\": {:.2f}, \"network_ms\": {:.2f}, "
      "\"collectives\": {}, \"over_larger\": {:.4f}, \"efficiency\": {:.4f}}}\n",
      setting.ranks, setting.stage, 1e3 * step,
      1e3 * *std::min_element(times.begin(), times.end()), 1e3 * computed, 1e3 * passed,
      network->calls / steps, step / std::max(computed, passed), sizes.step / step);
  std::fflush(stdout);
}

}  // namespace

int main(int argc, char** argv) {
  at::set_num_threads(1);
  const Words words(argc, argv);
  const Sizes sizes(words);
  fmt::print(
      "# modelled: {:.2f} G parameters, {} tokens a rank, {:.1f} ms on one GPU\n",
      1e-9 * static_cast<double>(sizes.parameters()), words.whole("tokens", 16384),
      1e3 * sizes.step);
  for (const auto& ranks : text::split(words.text("ranks", "1,8,64,512"), ',')) {
    for (const char stage : words.text("stages", "0123")) {
      measure({std::stoi(ranks), stage - '0'}, sizes, words);
    }
  }
  return 0;
}
