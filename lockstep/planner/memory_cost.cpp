#include <algorithm>
#include <array>
#include <vector>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/config/decisions.h"
#include "lockstep/planner/cost.h"

namespace lockstep::planner {
namespace {

using config::Precision;

constexpr double kMebi = 1 << 20;
constexpr double kContext = 450 * kMebi;   // of CUDA and its libraries' kernels
constexpr double kLibraries = 80 * kMebi;  // workspaces of cuBLAS and cuDNN
constexpr double kRings = 300 * kMebi;     // buffers of NCCL
constexpr double kOfFragments = 0.04;      // of a caching allocator's tensors
constexpr double kProcess = 150 * kMebi;   // a CPU rank without any tensor of a step

struct Widths {
  double parameter, gradient, state, master;
};

Widths widths_of(Precision precision) {
  if (config::has_half_parameters(precision)) return {2, 2, 4, 4};
  if (precision == Precision::fp64) return {8, 8, 8, 0};
  return {4, 4, 4, 0};
}

const run::Footprint& of(const run::Footprints& both, Precision precision) {
  return is_mixed(precision) ? both.half : both.fp32;
}

double scale_of(Precision precision) {
  return precision == Precision::fp64 ? 2 : 1;
}

// Returns all that passes of the model's own take beside the state, in one piece: the
// gradients of activations, too.
double own_bytes(const CostInputs& inputs, const Candidate& candidate) {
  const auto precision = inputs.config.precision.mode;
  return scale_of(precision) *
         of(inputs.model.own_passes.kept, precision).at(candidate.micro);
}

// Returns the activations that the forward pass leaves for the backward pass.
double activation_bytes(const CostInputs& inputs, const Candidate& candidate) {
  if (takes_own_passes(inputs, candidate)) return own_bytes(inputs, candidate);
  const auto precision = inputs.config.precision.mode;
  const double width = is_mixed(precision) ? 2 : 4;
  double kept = 0;
  double largest = 0;
  for (const auto& unit : inputs.model.units) {
    const double whole = of(unit.kept, precision).at(candidate.micro);
    const double input = static_cast<double>(unit.num_inputs) * width * candidate.micro;
    const bool again = candidate.recompute && unit.recomputable;
    if (again) largest = std::max(largest, whole);
    kept += unit.count * (again ? std::min(input, whole) : whole);
  }
  kept += largest;  // the one block that is being computed again
  if (!candidate.offload) return kept * scale_of(precision);
  // A few tensors are on their way while others wait in the host's memory.
  double biggest = 0;
  for (const auto& unit : inputs.model.units) {
    biggest = std::max(biggest, of(unit.kept, precision).at(candidate.micro));
  }
  return std::min(kept, 2 * biggest) * scale_of(precision);
}

// Returns whether ranks that have all state whole update shards, as processes that
// share memory do.
bool shards_update(const CostInputs& inputs, const Candidate& candidate) {
  auto parallel = inputs.config.parallel;
  parallel.strategy = config::Strategy::ddp;  // the candidate's, whatever is asked for
  const bool threads = candidate.method == Method::data_parallel;
  return config::shards_update(parallel, !threads && inputs.shares_memory());
}

bool shards_state(const CostInputs& inputs, const Candidate& candidate) {
  if (candidate.method == Method::zero1 || candidate.method == Method::zero2 ||
      candidate.method == Method::zero3) {
    return true;
  }
  return candidate.ranks > 1 && shards_update(inputs, candidate);
}

double bucket_bytes(const CostInputs& inputs) {
  return static_cast<double>(inputs.config.parallel.bucket_bytes.value_or(25 << 20));
}

// Returns the bytes of the buckets that live at a time, of so many of gradients.
double live_bytes(const CostInputs& inputs, double gradients) {
  return std::min(inputs.config.parallel.live_buckets * bucket_bytes(inputs),
                  gradients);
}

double largest_unit(const run::ModelDescription& model) {
  std::int64_t largest = 0;
  for (const auto& unit : model.units) largest = std::max(largest, unit.num_parameters);
  return static_cast<double>(largest);
}

// Adds parameters, gradients and optimizer state.
void add_state(const CostInputs& inputs, const Candidate& candidate, MemoryCost& cost) {
  const auto widths = widths_of(inputs.config.precision.mode);
  const auto count = static_cast<double>(inputs.model.num_parameters());
  const auto trained = static_cast<double>(inputs.model.num_trained());
  const double n = candidate.sharers();
  const double sharded = trained / n;
  const double of_state = shards_state(inputs, candidate) ? sharded : trained;
  const bool few_gradients =
      candidate.method == Method::zero2 || candidate.method == Method::zero3;
  cost.parameters = widths.parameter * count;
  cost.gradients = widths.gradient * (few_gradients ? sharded : trained);
  cost.optimizer = widths.state * num_states(inputs.config.optim) * of_state;
  cost.master = widths.master * of_state;
  cost.average = inputs.config.ema.enabled ? widths.state * of_state : 0;
  cost.buffers = static_cast<double>(inputs.model.buffer_bytes());
  if (few_gradients && n > 1) {
    const double all = widths.gradient * trained;
    // Beside them are gradients that wait until their bucket is full.
    cost.buckets += live_bytes(inputs, all) + std::min(bucket_bytes(inputs), all);
  }
  if (candidate.method == Method::zero3 && n > 1) {
    cost.parameters = widths.parameter * count / n;
    cost.buckets += 2 * widths.parameter * largest_unit(inputs.model);  // gathered
  }
  if (!inputs.config.parallel.gradient_as_bucket_view) {
    cost.buckets += widths.gradient * trained;
  }
  if (n > 1 && inputs.config.parallel.compression != config::Compression::none) {
    cost.buckets += 2 * trained;
  }
}

double evaluation_bytes(const CostInputs& inputs, std::int64_t micro) {
  const auto& eval = inputs.config.batch.eval;
  const auto most = eval.is_auto() ? evaluation_batch(inputs, micro) : eval.value();
  const auto samples = inputs.config.data.eval_samples;
  return of(inputs.model.forward, inputs.config.precision.mode)
      .at(samples > 0 ? std::min(samples, most) : most);
}

// Returns the share of a device's memory that a step may take: where the micro-batch is
// found by trying, no more than the search allows.
double share_of_memory(const config::MemoryConfig& memory, bool searched) {
  return searched ? std::min(memory.fraction, memory.target) : memory.fraction;
}

// Memory of a GPU that others use is not ours.
MemoryLimit gpu_memory_limit(const hardware::Gpu& gpu, double fraction) {
  const auto total = gpu.memory_total_bytes;
  const double ours = fraction * static_cast<double>(total);
  const auto free = gpu.status.memory_free_bytes;
  if (total > 0 && free && static_cast<double>(*free) < ours) {
    return {static_cast<double>(*free),
            str(units::format_bytes(*free), " that are free of ",
                units::format_bytes(total))};
  }
  return {ours, str(text::from_double(fraction), " x ", units::format_bytes(total))};
}

// Ranks that share memory keep there what travels, which is no allocator's: whole
// gradients, or the buckets of them that live; and whole values that ranks give each
// other. Shards are a rank's own.
void leave_out_shared(const CostInputs& inputs, const Candidate& candidate,
                      MemoryCost& cost) {
  if (candidate.ranks == 1 || candidate.method == Method::data_parallel) return;
  if (!inputs.shares_memory()) return;
  const auto widths = widths_of(inputs.config.precision.mode);
  const auto trained = static_cast<double>(inputs.model.num_trained());
  const int stage = stage_of(candidate.method);
  if (stage < 2) {
    cost.gradients = 0;
  } else {
    cost.buckets -= live_bytes(inputs, widths.gradient * trained);
  }
  const bool values_travel = stage < 3 && shards_state(inputs, candidate);
  if (values_travel) cost.parameters -= widths.parameter * trained;
}

}  // namespace

bool CostInputs::shares_memory() const {
  return !on_gpu() && config::shares_memory(config.comm);
}

double MemoryCost::state() const {
  return parameters + gradients + optimizer + master + average;
}

double MemoryCost::tensors() const {
  return parameters + gradients + optimizer + master + average + buffers + activations +
         transient + buckets + batches;
}

namespace {

// Returns what a training step takes, without an evaluation.
MemoryCost step_cost(const CostInputs& inputs, const Candidate& candidate) {
  const auto& config = inputs.config;
  const auto precision = config.precision.mode;
  const bool cuda = config.parallel.device == config::Device::cuda;
  MemoryCost cost;
  add_state(inputs, candidate, cost);
  cost.activations = activation_bytes(inputs, candidate);
  if (!takes_own_passes(inputs, candidate)) {
    cost.transient =
        scale_of(precision) * of(inputs.model.backward, precision).at(candidate.micro);
  }
  const auto sample = static_cast<double>(inputs.model.sample_bytes);
  const auto share = static_cast<double>(candidate.micro * candidate.accumulation);
  const int prefetch = config.data.prefetch.value_or(
      prefetched_batches(inputs.machine, sample * share * candidate.ranks));
  cost.batches = sample * share * (cuda ? 2 : prefetch + 1);
  if (!cuda) {
    if (config.memory.host_limit > 0) leave_out_shared(inputs, candidate, cost);
    // memory.host_limit counts nothing but tensors.
    const double process = config.memory.host_limit > 0 ? 0 : kProcess;
    const double learnt = inputs.correction.memory_bytes;
    cost.process = learnt > 0 ? learnt : process;
    return cost;
  }
  cost.transient += kLibraries;
  cost.process = kContext + (candidate.ranks > 1 ? kRings : 0);
  cost.activations *= inputs.correction.memory;
  cost.transient *= inputs.correction.memory;
  cost.fragmentation = kOfFragments * (cost.activations + cost.transient);
  return cost;
}

}  // namespace

MemoryCost memory_cost(const CostInputs& inputs, const Candidate& candidate) {
  auto cost = step_cost(inputs, candidate);
  if (inputs.on_gpu()) return cost;
  // An evaluation takes the place of a step's activations, if it needs more.
  const double step = cost.activations + cost.transient;
  const double evaluation = evaluation_bytes(inputs, candidate.micro);
  cost.transient += std::max(0.0, evaluation - step);
  return cost;
}

int ranks_of_node(const CostInputs& inputs, int ranks) {
  if (!inputs.on_gpu()) return 0;
  int size = ranks;  // the first rank that is not on the node of the first
  const auto& pairs = inputs.machine.gpu_pairs;
  const auto far = [](const hardware::GpuPair& pair) { return pair.path == "network"; };
  for (const auto& pair : pairs) {
    const auto [first, last] = std::minmax(pair.first, pair.second);
    if (first == 0 && far(pair)) size = std::min(size, last);
  }
  if (size == ranks || ranks % size != 0) return 0;
  const bool alike =
      std::all_of(pairs.begin(), pairs.end(), [&](const hardware::GpuPair& pair) {
        return std::max(pair.first, pair.second) >= ranks ||
               far(pair) == (pair.first / size != pair.second / size);
      });
  return alike ? size : 0;
}

int prefetched_batches(const hardware::Machine& machine, double batch_bytes) {
  constexpr int kEnough = 4;
  constexpr double kTenth = 10;
  const double room = static_cast<double>(machine.memory_total_bytes) / kTenth;
  if (batch_bytes <= 0 || room <= 0) return kEnough;
  return static_cast<int>(std::clamp<double>(room / batch_bytes, 1, kEnough));
}

bool will_find_micro(const config::Config& config) {
  const bool limited =
      config.parallel.device == config::Device::cuda || config.memory.host_limit > 0;
  const bool open = config.batch.micro.is_auto() && config.batch.accumulation.is_auto();
  return config.memory.find_micro.value_or(limited && open &&
                                           !config.parallel.sync_batch_norm);
}

MemoryLimit memory_limit(const CostInputs& inputs, const Candidate& candidate) {
  const auto& config = inputs.config;
  const int ranks = candidate.ranks;
  const bool searched = will_find_micro(config);
  const double allowed = share_of_memory(config.memory, searched);
  if (config.parallel.device == config::Device::cpu) {
    if (config.memory.host_limit > 0) {
      // The limit is of a process: replicas that are threads share it.
      const bool shared = candidate.method == Method::data_parallel && ranks > 1;
      const double part = searched ? allowed : 1;
      return {
          part * static_cast<double>(config.memory.host_limit) / (shared ? ranks : 1),
          str(searched ? text::from_double(part) + " x " : "", "memory.host_limit ",
              units::format_bytes(config.memory.host_limit),
              shared ? str(" / ", ranks, " replicas") : "")};
    }
    constexpr double kOfHost = 0.9;
    const auto total = inputs.machine.memory_total_bytes;
    if (total <= 0) return {};
    const auto shared = ranks > 1 ? str(" / ", ranks, " ranks") : "";
    return {kOfHost * static_cast<double>(total) / ranks,
            str(kOfHost, " x ", units::format_bytes(total), " of the host", shared)};
  }
  MemoryLimit least;
  const auto count = std::min<std::size_t>(ranks, inputs.machine.gpus.size());
  for (std::size_t i = 0; i < count; ++i) {
    const auto one = gpu_memory_limit(inputs.machine.gpus[i], allowed);
    if (least.bytes <= 0 || one.bytes < least.bytes) least = one;
  }
  return least;
}

std::int64_t evaluation_batch(const CostInputs& inputs, std::int64_t micro) {
  const bool cuda = inputs.config.parallel.device == config::Device::cuda;
  // Blocks of another size than a step's find no room in the holes that those leave in
  // the heap of a host: an evaluation of as much takes twice that.
  const double small = cuda ? 1 << 30 : 64 << 20;
  const double share = cuda ? 1 : 0.5;
  const auto step = step_cost(inputs, {.micro = micro});
  const double limit = memory_limit(inputs, {}).bytes;
  const double state = step_cost(inputs, {.micro = 0}).peak();
  const double free = limit > 0 ? limit - state : small;
  const double room =
      std::max(share * (step.activations + step.transient), std::min(small, free));
  const auto& forward = of(inputs.model.forward, inputs.config.precision.mode);
  std::int64_t batch = cuda ? 1024 : 256;
  while (batch > 1 && forward.at(batch) > room) batch /= 2;
  return std::max(micro, batch);
}

std::string memory_lack(const CostInputs& inputs, const Prediction& prediction) {
  if (prediction.fits()) return "";
  return str("needs ", units::format_bytes(prediction.memory.peak()), " > ",
             memory_limit(inputs, prediction.candidate).because);
}

std::string terms_of(const MemoryCost& memory) {
  const std::array<std::pair<std::string_view, double>, 13> terms = {{
      {"parameters", memory.parameters},
      {"gradients", memory.gradients},
      {"optimizer", memory.optimizer},
      {"master weights", memory.master},
      {"EMA", memory.average},
      {"running statistics", memory.buffers},
      {"activations", memory.activations},
      {"activation gradients and workspaces", memory.transient},
      {"buckets", memory.buckets},
      {"prefetched batches", memory.batches},
      {"CUDA context and process", memory.process},
      {"allocator fragmentation", memory.fragmentation},
  }};
  constexpr double kWorthAWord = kMebi / 10;
  std::vector<std::string> words;
  const auto bytes = [](double value) {
    return units::format_bytes(static_cast<std::int64_t>(value));
  };
  for (const auto& [name, value] : terms) {
    if (value >= kWorthAWord) words.push_back(str(name, " ", bytes(value)));
  }
  return str(text::join(words, " + "), " = ", bytes(memory.peak()));
}

}  // namespace lockstep::planner
