// How close is a step of GPT-2, by the passes that are written out, to the floor of
// this GPU? bf16 weights with float masters, AdamW, clipping, all of it one CUDA graph.
// The floor is each product and attention timed alone, and the bytes of the rest over
// the bandwidth of a copy: the method of speed_of_light.py.
//
//   bench_gpt_fast [SIZE] [BATCH] [STEPS]     SIZE is gpt2, gpt2-medium, ...
#include <bit>
#include <chrono>
#include <cstring>
#include <map>

#include "benchmarks/flat_parameters.h"
#include "benchmarks/support.h"
#include <fmt/format.h>

#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/torch.h>

#include "lockstep/base/str.h"
#include "lockstep/kernels/cuda_graph.h"
#include "lockstep/models/gpt_pass.h"
#include "lockstep/models/model.h"

using namespace lockstep;  // NOLINT: a program of one file

namespace {

using torch::Tensor;

constexpr std::int64_t kLength = 1024, kVocabulary = 50257, kMultiple = 64;
const torch::Device kDevice(torch::kCUDA, 0);

// The gradients are where FlatParameters has put them.
class GradSink : public GradientSink {
 public:
  Destination destination_of(const Tensor& parameter) override {
    return {parameter.grad(), false};
  }
  void ready(const Tensor&) override {}
};

// Milliseconds of one of `count` calls in a row.
double time_of(int count, const std::function<void()>& body) {
  const auto wait = [] {
    c10::impl::VirtualGuardImpl(torch::kCUDA).synchronizeDevice(0);
  };
  body();
  wait();
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < count; ++i) body();
  wait();
  const std::chrono::duration<double, std::milli> took =
      std::chrono::steady_clock::now() - begin;
  return took.count() / count;
}

// AdamW over all parameters in three launches and the norm's, from device memory alone.
class Update {
 public:
  explicit Update(bench::FlatParameters& parameters)
      : parameters_(parameters),
        count_(parameters.values().numel()),
        master_(parameters.values().to(torch::kFloat32)),
        first_(torch::zeros_like(master_)),
        second_(torch::zeros_like(master_)),
        numbers_(torch::zeros({kernels::norm_workspace(count_) + 3},
                              master_.options().dtype(torch::kFloat64))),
        hyper_(torch::zeros({8}, numbers_.options())) {
    std::vector<kernels::Chunk> chunks;
    for (std::int64_t begin = 0; begin < count_; begin += kernels::kDeviceChunk) {
      chunks.push_back(
          {begin, std::min(begin + kernels::kDeviceChunk, count_), 1, 0.1});
    }
    num_chunks_ = static_cast<std::int64_t>(chunks.size());
    const auto bytes = num_chunks_ * static_cast<std::int64_t>(sizeof(kernels::Chunk));
    chunks_ = torch::from_blob(chunks.data(), {bytes}, torch::kUInt8).to(kDevice);
  }

  // What changes from step to step; not part of the graph.
  void next() {
    ++step_;
    const kernels::Hyper hyper{.lr = 6e-4,
                               .beta1 = 0.9,
                               .beta2 = 0.95,
                               .eps = 1e-8,
                               .bias1 = 1 - std::pow(0.9, step_),
                               .bias2 = 1 - std::pow(0.95, step_)};
    kernels::Words words{
        .out = std::bit_cast<std::uint64_t*>(hyper_.mutable_data_ptr()), .count = 8};
    std::memcpy(words.first, &hyper, sizeof hyper);
    kernels::put_words_cuda(words, kernels::current_stream(0));
  }

  void launch() {
    auto* const stream = kernels::current_stream(0);
    auto* const number = numbers_.mutable_data_ptr<double>();
    kernels::squared_norm_cuda({.in = parameters_.gradients().const_data_ptr(),
                                .element = kernels::Element::bf16,
                                .num_elements = count_,
                                .workspace = number + 3,
                                .out = number},
                               stream);
    kernels::clip_factor_cuda({.squared = number, .out = number + 1, .most = 1},
                              stream);
    kernels::update_cuda(
        {.rule = kernels::Rule::adamw,
         .storage = kernels::Storage::bf16,
         .weights = master_.mutable_data_ptr(),
         .rounded =
             static_cast<std::uint16_t*>(parameters_.values().mutable_data_ptr()),
         .gradients = parameters_.gradients().const_data_ptr(),
         .first = first_.mutable_data_ptr(),
         .second = second_.mutable_data_ptr(),
         .chunks = static_cast<const kernels::Chunk*>(chunks_.const_data_ptr()),
         .num_chunks = num_chunks_,
         .factor = number + 2,
         .hyper_at = static_cast<const kernels::Hyper*>(hyper_.const_data_ptr())},
        stream);
  }

  std::int64_t count() const noexcept { return count_; }

 private:
  bench::FlatParameters& parameters_;
  std::int64_t count_, num_chunks_ = 0;
  Tensor master_, first_, second_, numbers_, hyper_, chunks_;
  int step_ = 0;
};

struct Floor {
  double gemms = 0, attention = 0, memory = 0;
  double total() const { return gemms + attention + memory; }
};

double copy_bandwidth() {  // bytes a millisecond
  const auto from = torch::empty({std::int64_t{1} << 30},
                                 torch::dtype(torch::kFloat32).device(kDevice));
  auto to = torch::empty_like(from);
  return 2.0 * static_cast<double>(from.nbytes()) / time_of(5, [&] { to.copy_(from); });
}

struct Case {
  const config::GptSize& size;
  std::int64_t batch, parameters;
};

Floor floor_of(const models::GptPass::Tuned& tuned, const Case& of) {
  const auto& [size, batch, parameters] = of;
  const auto rows = (kVocabulary + kMultiple - 1) / kMultiple * kMultiple;
  const auto tokens = static_cast<double>(batch * kLength);
  const auto layers = static_cast<double>(size.layers);
  Floor floor;
  for (const auto& one : tuned.gemms) {
    const auto& shape = one.shape;
    if (shape.adds && shape.a_transposed) continue;  // of accumulation
    const bool head = shape.m == rows || shape.n == rows || shape.k == rows;
    floor.gemms += (head ? 1 : layers) * one.fastest_ms;
    fmt::print(
        "  {:>6} x {:>6} x {:>6}{}  first guess {:.4f}, best {:.4f} ms, {:4.0f} "
        "TFLOP/s, of {}: {}\n",
        shape.m, shape.n, shape.k, head ? " " : "*", one.guess_ms, one.fastest_ms,
        2e-9 * static_cast<double>(shape.m * shape.n * shape.k) / one.fastest_ms,
        one.tried, one.algorithm);
  }
  floor.attention = layers * tuned.attention_ms;
  // speed_of_light.py's bytes: what is left when all that can be is fused.
  const double act = 2.0 * tokens * static_cast<double>(size.hidden);
  const double bytes = layers * (8 + 8 + 8) * act + 6 * act +
                       4.0 * tokens * static_cast<double>(rows) +
                       28.0 * static_cast<double>(parameters);
  floor.memory = bytes / copy_bandwidth();
  return floor;
}

void measure(const config::GptSize& size, std::int64_t batch, int steps) {
  torch::manual_seed(0);
  const auto model = models::build({.name = "gpt",
                                    .size = std::string(size.name),
                                    .hidden = size.hidden,
                                    .layers = size.layers,
                                    .heads = size.heads,
                                    .pad_vocabulary = kMultiple},
                                   {{kLength}, kVocabulary});
  model->to(kDevice, torch::kBFloat16);
  bench::FlatParameters parameters(*model);
  Update update(parameters);
  const auto draw = [&] {
    return torch::randint(kVocabulary, {batch, kLength},
                          torch::dtype(torch::kInt64).device(kDevice));
  };
  const auto tokens = draw(), targets = draw().flatten();
  const auto stream = c10::impl::VirtualGuardImpl(torch::kCUDA)
                          .getStreamFromGlobalPool(kDevice, /*isHighPriority=*/false);
  const c10::StreamGuard guard(stream);
  models::GptPass pass(models::gpt_parameters(*model), size.heads, kVocabulary);
  const auto tuned = pass.tune(batch, kLength);
  GradSink sink;
  const double scale = 1.0 / static_cast<double>(batch * kLength);
  const auto step = [&] {
    pass.forward(tokens, {});
    pass.cross_entropy(targets, {.scale = scale});
    pass.backward(sink);
    update.launch();
  };
  update.next();
  step();
  kernels::CudaGraph graph;
  graph.capture(step);
  std::vector<double> times;
  for (int i = 0; i < steps; ++i) {
    times.push_back(time_of(1, [&] {
      update.next();
      graph.replay();
    }));
  }
  const double ms = median(times);
  const auto floor = floor_of(tuned, {size, batch, update.count()});
  fmt::print("  (*: in every layer)\n");
  for (const auto& tried : tuned.attention) fmt::print("  attention: {}\n", tried);
  fmt::print("arena {:.2f} GB instead of {:.2f}\n",
             static_cast<double>(pass.arena().bytes()) / 1e9,
             static_cast<double>(pass.arena().sum()) / 1e9);
  fmt::print(
      "{} batch {}: ratio to the floor {:.3f}; {:.3f} ms, {:.0f}k tokens/s; floor "
      "{:.3f} "
      "ms = products {:.3f} + attention {:.3f} + memory {:.3f}\n",
      size.name, batch, ms / floor.total(), ms,
      static_cast<double>(batch * kLength) / ms, floor.total(), floor.gemms,
      floor.attention, floor.memory);
}

}  // namespace

int main(int argc, char** argv) {
  const auto* size = config::find_gpt_size(argc > 1 ? argv[1] : "gpt2");
  if (size == nullptr || !torch::cuda::is_available() || !kernels::gemms_available()) {
    fmt::print(stderr,
               "bench_gpt_fast: it needs a size by its name, a GPU and a build "
               "with kernels\n");
    return 2;
  }
  measure(*size, argc > 2 ? std::atoi(argv[2]) : 4, argc > 3 ? std::atoi(argv[3]) : 20);
}
