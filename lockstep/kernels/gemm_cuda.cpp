#include <algorithm>
#include <limits>
#include <optional>
#include <sstream>

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "lockstep/base/error.h"
#include "lockstep/kernels/detail/lt_call.h"
#include "lockstep/kernels/gemm.h"

namespace lockstep::kernels {
namespace {

using detail::check_lt;
using detail::LtCall;

constexpr int kMostGuesses = 64;  // that cuBLASLt is asked for
constexpr int kMostVaried = 6;    // the fastest of them are varied
constexpr float kQuickMs = 1;     // to sort out
constexpr float kThoroughMs = 2;  // to choose, in each of the rounds
constexpr int kMostRuns = 40;     // in that time
constexpr int kRounds = 3;        // in turn: clocks change while they run
constexpr int kMostThorough = 6;

struct Candidate {
  cublasLtMatmulAlgo_t algo{};
  float ms = 0;
};

template <typename T>
T setting(const cublasLtMatmulAlgo_t& algo, cublasLtMatmulAlgoConfigAttributes_t name) {
  T value{};
  std::size_t written = 0;
  cublasLtMatmulAlgoConfigGetAttribute(&algo, name, &value, sizeof value, &written);
  return value;
}

std::string described(const cublasLtMatmulAlgo_t& algo) {
  return str("id ", setting<int>(algo, CUBLASLT_ALGO_CONFIG_ID), " tile ",
             setting<unsigned>(algo, CUBLASLT_ALGO_CONFIG_TILE_ID), " stages ",
             setting<unsigned>(algo, CUBLASLT_ALGO_CONFIG_STAGES_ID), " split ",
             setting<int>(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM), " swizzle ",
             setting<unsigned>(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING), " cluster ",
             setting<std::uint16_t>(algo, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID));
}

// A product that algorithms are timed with.
struct Trial {
  const LtCall& call;
  CUstream_st* stream;
};

struct Events {
  Events() {
    cudaEventCreate(&begin);
    cudaEventCreate(&end);
  }
  ~Events() {
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;
  cudaEvent_t begin{}, end{};
};

std::string hex(const cublasLtMatmulAlgo_t& algo) {
  std::ostringstream out;
  for (const auto word : algo.data) out << std::hex << word << ' ';
  return out.str();
}

}  // namespace

struct Gemms::Impl {
  cublasLtHandle_t handle{};
  void* workspace = nullptr;
  std::size_t bytes = 0;
  std::string machine;  // what choices depend on
  struct Choice {
    GemmShape shape;
    cublasLtMatmulAlgo_t algo;
    bool tuned = false;
  };
  std::vector<Choice> choices;  // a dozen

  Choice* find(const GemmShape& shape) {
    for (auto& choice : choices) {
      if (choice.shape == shape) return &choice;
    }
    return nullptr;
  }

  bool launch(const LtCall& call, const cublasLtMatmulAlgo_t& algo,
              CUstream_st* stream) const {
    return call.run({handle, &algo, workspace, bytes, stream}) == CUBLAS_STATUS_SUCCESS;
  }

  // Returns the time of one of several runs, after one that does not count; nothing if
  // it does not run.
  std::optional<float> time(const Trial& trial, const cublasLtMatmulAlgo_t& algo,
                            float budget_ms) const {
    const auto first = time(trial, algo, 1);
    if (!first) return first;
    const auto runs = static_cast<int>(budget_ms / std::max(*first, 1e-3F));
    return runs < 1 ? first : time(trial, algo, std::min(runs, kMostRuns));
  }
  std::optional<float> time(const Trial& trial, const cublasLtMatmulAlgo_t& algo,
                            int runs) const {
    const auto& [call, stream] = trial;
    const Events events;
    cudaEventRecord(events.begin, stream);
    for (int i = 0; i < runs; ++i) {
      if (!launch(call, algo, stream)) return std::nullopt;
    }
    cudaEventRecord(events.end, stream);
    if (cudaEventSynchronize(events.end) != cudaSuccess) {
      throw Error(Fault::hardware, "kernels: a product of matrices failed: ",
                  cudaGetErrorString(cudaGetLastError()));
    }
    float ms = 0;
    cudaEventElapsedTime(&ms, events.begin, events.end);
    return ms / static_cast<float>(runs);
  }

  // Adds other swizzles and splits of an algorithm, where they can run.
  void add_variants(const LtCall& call, const cublasLtMatmulAlgo_t& algo,
                    std::vector<Candidate>& to) const {
    const auto add = [&](const cublasLtMatmulAlgo_t& varied) {
      cublasLtMatmulHeuristicResult_t result{};
      if (call.check(handle, varied, result) && result.workspaceSize <= bytes) {
        to.push_back({varied});
      }
    };
    auto other = algo;
    const unsigned swizzle =
        setting<unsigned>(algo, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING) == 0 ? 1 : 0;
    cublasLtMatmulAlgoConfigSetAttribute(&other, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
                                         &swizzle, sizeof swizzle);
    add(other);
    const unsigned scheme = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    for (const int split : {2, 3, 4, 6}) {
      auto parts = algo;
      cublasLtMatmulAlgoConfigSetAttribute(&parts, CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
                                           &split, sizeof split);
      cublasLtMatmulAlgoConfigSetAttribute(
          &parts, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme);
      add(parts);
    }
  }

  // Times from `first` on, drops what does not run, and sorts all by time.
  void sort(std::vector<Candidate>& all, const Trial& trial, std::size_t first) const {
    for (auto i = first; i < all.size(); ++i) {
      all[i].ms = time(trial, all[i].algo, kQuickMs).value_or(-1);
    }
    std::erase_if(all, [](const Candidate& one) { return one.ms < 0; });
    std::stable_sort(
        all.begin(), all.end(),
        [](const Candidate& a, const Candidate& b) { return a.ms < b.ms; });
  }
};

Gemms::Gemms(void* workspace, std::size_t bytes) : impl_(std::make_unique<Impl>()) {
  check_lt(cublasLtCreate(&impl_->handle), "cublasLtCreate");
  impl_->workspace = workspace;
  impl_->bytes = bytes;
  int device = 0;
  cudaDeviceProp properties{};
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaGetDeviceProperties(&properties, device) != cudaSuccess) {
    throw Error(Fault::hardware, "kernels: the GPU does not tell what it is");
  }
  std::string name = properties.name;
  std::replace(name.begin(), name.end(), ' ', '_');
  impl_->machine = str(name, ' ', cublasLtGetVersion(), ' ', bytes);
}

Gemms::~Gemms() {
  cublasLtDestroy(impl_->handle);
}

void Gemms::run(const Gemm& gemm, CUstream_st* stream) {
  const LtCall call(gemm);
  auto* choice = impl_->find(gemm.shape);
  if (choice == nullptr && gemm.shape.adds) {
    // What is the fastest without the sum is so with it.
    auto without = gemm.shape;
    without.adds = false;
    const auto* measured = impl_->find(without);
    cublasLtMatmulHeuristicResult_t result{};
    if (measured != nullptr && measured->tuned &&
        call.check(impl_->handle, measured->algo, result) &&
        result.workspaceSize <= impl_->bytes) {
      impl_->choices.push_back({gemm.shape, measured->algo, false});
      choice = &impl_->choices.back();
    }
  }
  if (choice == nullptr) {
    const auto guesses = call.guesses(impl_->handle, 1, impl_->bytes);
    impl_->choices.push_back({gemm.shape, guesses.at(0), false});
    choice = &impl_->choices.back();
  }
  check_lt(
      call.run({impl_->handle, &choice->algo, impl_->workspace, impl_->bytes, stream}),
      "cublasLtMatmul");
}

Gemms::Tuned Gemms::tune(const Gemm& gemm, CUstream_st* stream) {
  const LtCall call(gemm);
  const Trial trial{call, stream};
  std::vector<Candidate> all;
  for (const auto& algo : call.guesses(impl_->handle, kMostGuesses, impl_->bytes)) {
    all.push_back({algo});
  }
  const auto guess = all.at(0).algo;
  impl_->sort(all, trial, 0);
  const auto known = all.size();
  for (std::size_t i = 0; i < std::min<std::size_t>(kMostVaried, known); ++i) {
    const auto algo = all[i].algo;
    impl_->add_variants(call, algo, all);
  }
  impl_->sort(all, trial, known);
  const auto tried = static_cast<int>(all.size());
  all.resize(std::min<std::size_t>(all.size(), kMostThorough));
  all.push_back({guess, -1});  // which is often among the fastest
  for (auto& one : all) one.ms = std::numeric_limits<float>::infinity();
  for (int round = 0; round < kRounds; ++round) {
    for (auto& one : all) {
      const auto ms = impl_->time(trial, one.algo, kThoroughMs);
      if (ms) one.ms = std::min(one.ms, *ms);
    }
  }
  const auto guess_ms = all.back().ms;
  const auto best = *std::min_element(
      all.begin(), all.end(), [](const auto& a, const auto& b) { return a.ms < b.ms; });
  if (auto* choice = impl_->find(gemm.shape)) {
    *choice = {gemm.shape, best.algo, true};
  } else {
    impl_->choices.push_back({gemm.shape, best.algo, true});
  }
  return {gemm.shape, tried, guess_ms, best.ms, described(best.algo)};
}

bool Gemms::is_tuned(const GemmShape& shape) const {
  const auto* choice = impl_->find(shape);
  return choice != nullptr && choice->tuned;
}

std::string Gemms::choices() const {
  std::ostringstream out;
  for (const auto& [shape, algo, tuned] : impl_->choices) {
    if (!tuned) continue;
    out << impl_->machine << ' ' << shape.m << ' ' << shape.n << ' ' << shape.k << ' '
        << shape.a_transposed << ' ' << shape.b_transposed << ' '
        << static_cast<int>(shape.number) << ' ' << static_cast<int>(shape.epilogue)
        << ' ' << shape.adds << ' ' << hex(algo) << '\n';
  }
  return out.str();
}

void Gemms::use_choices(const std::string& text) {
  std::istringstream lines(text);
  std::vector<GemmShape> taken;  // from this text, in which the first of a shape wins
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(impl_->machine + ' ', 0) != 0) continue;
    std::istringstream words(line.substr(impl_->machine.size()));
    Impl::Choice choice{};
    int number = 0, epilogue = 0;
    auto& shape = choice.shape;
    words >> shape.m >> shape.n >> shape.k >> shape.a_transposed >>
        shape.b_transposed >> number >> epilogue >> shape.adds >> std::hex;
    for (auto& word : choice.algo.data) words >> word;
    shape.number = static_cast<Number>(number);
    shape.epilogue = static_cast<Epilogue>(epilogue);
    if (!words) continue;
    if (std::find(taken.begin(), taken.end(), shape) != taken.end()) continue;
    taken.push_back(shape);
    choice.tuned = true;
    if (auto* known = impl_->find(shape)) {
      *known = choice;
    } else {
      impl_->choices.push_back(choice);
    }
  }
}

bool gemms_available() noexcept {
  return true;
}

}  // namespace lockstep::kernels
