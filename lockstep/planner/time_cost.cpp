#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/planner/cost.h"
#include "lockstep/planner/detail/search.h"
#include "lockstep/planner/rates.h"

namespace lockstep::planner {
namespace {

using config::Precision;

// A backward pass computes two products for each of the forward pass.
constexpr double kBackward = 2;
// A kept byte is written and read again, and so is its gradient; as much is moved by
// operators that keep nothing, or that read twice, such as normalisation. GPUs spend
// more on it, since data that does not fit a tile is moved again.
constexpr double kTraffic = 8;
constexpr double kTrafficOfGpu = 13;
// The least time in which a host launches an operator, with its backward pass and the
// changes of format that mixed precision adds: three each. Seen of ResNets on an H200.
constexpr double kLaunch = 25e-6;
constexpr double kLaunches = 3;

// Collectives slow the computation beside them by this part.
constexpr double kInterference = 0.15;
// Ranks are never equally fast; all wait for the slowest, which is later with each
// doubling of their number.
constexpr double kSkew = 0.01;

// Returns the cores that a rank computes with.
double cores_of_rank(const CostInputs& inputs, int ranks) {
  const double cores = std::max(1, inputs.machine.physical_cores);
  const int all = inputs.config.parallel.threads.value_or(
      std::max(1, inputs.machine.physical_cores / ranks));
  // More threads than cores share them, and so do more ranks.
  return std::min<double>(all, cores / ranks);
}

// Returns the slowest of the ranks' devices, for which the others wait.
DeviceRates device_rates(const CostInputs& inputs, int ranks) {
  if (!inputs.on_gpu()) return cpu_rates(inputs.machine, cores_of_rank(inputs, ranks));
  auto slowest = gpu_rates(inputs.machine, 0, inputs.config.precision.mode);
  const auto count = std::min<std::size_t>(ranks, inputs.machine.gpus.size());
  for (std::size_t i = 1; i < count; ++i) {
    const auto one = gpu_rates(inputs.machine, i, inputs.config.precision.mode);
    if (one.flops * one.efficiency < slowest.flops * slowest.efficiency) slowest = one;
  }
  return slowest;
}

struct Work {
  double launches = 0;  // of operators, by the host
  double flops = 0;     // of a micro-batch, forward and backward
  double again = 0;     // computed a second time
  double bytes = 0;     // moved by what is no product
};

Work work_of(const CostInputs& inputs, const Candidate& candidate) {
  Work work;
  const bool half = is_mixed(inputs.config.precision.mode);
  const auto samples = static_cast<double>(candidate.micro);
  for (const auto& unit : inputs.model.units) {
    const double forward = unit.count * unit.forward_flops * samples;
    const auto& kept = half ? unit.kept.half : unit.kept.fp32;
    const double bytes = unit.count * kept.at(candidate.micro);
    const double operators = unit.count * static_cast<double>(unit.operators);
    work.flops += (1 + kBackward) * forward;
    work.launches += kLaunches * operators;
    work.bytes += (inputs.on_gpu() ? kTrafficOfGpu : kTraffic) * bytes;
    if (!candidate.recompute || !unit.recomputable) continue;
    work.again += forward;
    work.launches += operators;
    work.bytes += (inputs.on_gpu() ? kTrafficOfGpu / 3 : 1) * bytes;  // forward's part
  }
  return work;
}

struct MicroTime {
  double seconds = 0;
  bool host_bound = false;
};

MicroTime micro_time(const CostInputs& inputs, const Candidate& candidate,
                     const DeviceRates& rates) {
  const auto work = work_of(inputs, candidate);
  const double busy = (work.flops + work.again) / (rates.flops * rates.efficiency) +
                      work.bytes / rates.memory;
  if (!inputs.on_gpu()) {
    constexpr double kCall = 6e-6;
    return {(busy + kCall * work.launches) *
            inputs.correction.time_with(cores_of_rank(inputs, candidate.ranks))};
  }
  // A GPU works off the operators that were launched.
  const double device = busy * inputs.correction.time;
  const double host = kLaunch * work.launches * inputs.correction.host_time;
  return {std::max(device, host), host > device};
}

// Returns the bytes of parameters, gradients and states that an update touches.
double update_bytes(const CostInputs& inputs, const Candidate& candidate) {
  const auto memory = memory_cost(inputs, candidate);
  const bool sharded = candidate.method != Method::single &&
                       candidate.method != Method::data_parallel &&
                       candidate.method != Method::ddp;
  const double part = sharded ? 1.0 / candidate.sharers() : 1;
  return 2 * (memory.optimizer + memory.master + memory.average) +
         part * (2 * memory.parameters + memory.gradients);
}

struct ExchangeCost {
  double seconds = 0;
  double can_hide = 0;  // behind computing
};

double gradient_bytes(const CostInputs& inputs) {
  const auto mode = inputs.config.precision.mode;
  const bool compressed =
      inputs.config.parallel.compression != config::Compression::none;
  const double width = mode == Precision::fp64                           ? 8
                       : config::has_half_parameters(mode) || compressed ? 2
                                                                         : 4;
  return width * static_cast<double>(inputs.model.num_trained());
}

double parameter_bytes(const CostInputs& inputs) {
  const auto mode = inputs.config.precision.mode;
  const double width = mode == Precision::fp64 ? 8 : is_mixed(mode) ? 2 : 4;
  return width * static_cast<double>(inputs.model.num_parameters());
}

struct PassSeconds {
  double backward = 0;  // of the last backward pass, beside which buckets travel
  double compute = 0;   // of all passes of a step
};

// The seconds of collectives over some of the ranks.
struct Link {
  double part = 0;     // of a gather, or of a scatter, a byte of the whole
  double latency = 0;  // of either, a message
  double scatter = 1;  // how much more a scatter takes than a gather
};

// Of the ranks, `each` take part, which lie within the first `within`.
struct Partners {
  int within = 1;
  double each = 1;
};

Link link_between(const CostInputs& inputs, const Candidate& candidate,
                  const Partners& partners) {
  const auto& [within, ranks] = partners;
  const bool threads = candidate.method == Method::data_parallel;
  const bool memory = threads || inputs.shares_memory();
  const auto link = inputs.on_gpu() ? gpu_link(inputs.machine, within)
                                    : cpu_link(inputs.machine, within, memory);
  // A reduce_scatter of gloo takes as long as its all_reduce.
  const bool over_gloo = !inputs.on_gpu() && !memory;
  return {(ranks - 1) / ranks / link.bytes, link.latency * (ranks - 1),
          over_gloo ? 2.0 : 1.0};
}

// The collectives of shards: within groups, and of gradients over the groups after it.
struct ShardSeconds {
  double gather = 0;   // of parameters
  double scatter = 0;  // of gradients
};

ShardSeconds shard_seconds(const CostInputs& inputs, const Candidate& candidate,
                           double messages) {
  const int sharers = candidate.sharers();
  const auto within =
      link_between(inputs, candidate, {sharers, static_cast<double>(sharers)});
  const double gradients = gradient_bytes(inputs);
  ShardSeconds seconds{
      .gather = parameter_bytes(inputs) * within.part + messages * within.latency,
      .scatter =
          within.scatter * (gradients * within.part + messages * within.latency)};
  const double groups = static_cast<double>(candidate.ranks) / sharers;
  if (groups <= 1) return seconds;
  const auto across = link_between(inputs, candidate, {candidate.ranks, groups});
  seconds.scatter +=
      2 * (gradients / sharers * across.part + messages * across.latency);
  return seconds;
}

ExchangeCost exchange_cost(const CostInputs& inputs, const Candidate& candidate,
                           const PassSeconds& passes) {
  const auto [backward, compute] = passes;
  const double n = candidate.ranks;
  if (n <= 1) return {};
  const double gradients = gradient_bytes(inputs);
  const double bucket = std::max(
      1.0, static_cast<double>(inputs.config.parallel.bucket_bytes.value_or(25 << 20)));
  const double messages = std::max(1.0, gradients / bucket);
  const double last = 1 / std::max(2.0, messages);  // the bucket nothing hides
  const auto accumulation = static_cast<double>(candidate.accumulation);
  const auto [gather, scatter] = shard_seconds(inputs, candidate, messages);
  const auto whole = link_between(inputs, candidate, {candidate.ranks, n});
  const double latency = 2 * messages * whole.latency;
  switch (candidate.method) {
    case Method::data_parallel: {
      // Threads read the gradients of all others, one after the other.
      const double all = n * gradients * whole.part + latency;
      return {all, std::min(all * (1 - last), backward)};
    }
    case Method::zero1:
      return {scatter + gather, std::min(scatter * (1 - last), backward)};
    case Method::zero2: {
      const double beside = backward * accumulation;
      return {accumulation * scatter + gather,
              std::min(accumulation * scatter * (1 - last), beside)};
    }
    case Method::zero3: {
      const double all = accumulation * (scatter + 2 * gather);
      return {all, std::min(all * (1 - last), compute)};
    }
    default: {
      const double all = 2 * gradients * whole.part + latency;
      return {all, std::min(all * (1 - last), backward)};
    }
  }
}

double offload_seconds(const CostInputs& inputs, const Candidate& candidate,
                       double compute) {
  if (!candidate.offload || !inputs.on_gpu()) return 0;
  auto all = candidate;
  all.offload = false;
  const auto bytes = memory_cost(inputs, all).activations *
                     static_cast<double>(candidate.accumulation);
  const double copies = 2 * bytes / host_link(inputs.machine, 0).bytes;
  return std::max(0.0, copies - compute);
}

}  // namespace

TimeCost time_cost(const CostInputs& inputs, const Candidate& candidate) {
  const auto rates = device_rates(inputs, candidate.ranks);
  const auto [micro, host_bound] = micro_time(inputs, candidate, rates);
  TimeCost cost;
  cost.host_bound = host_bound;
  cost.compute = micro * static_cast<double>(candidate.accumulation);
  cost.update = update_bytes(inputs, candidate) / rates.memory * inputs.correction.time;
  const double backward = micro * kBackward / (1 + kBackward);
  const auto exchange =
      exchange_cost(inputs, candidate, {.backward = backward, .compute = cost.compute});
  cost.exchange = exchange.seconds;
  cost.exposed =
      exchange.seconds - exchange.can_hide + kInterference * exchange.can_hide;
  cost.wait = kSkew * std::log2(candidate.ranks) * cost.compute;
  cost.offload = offload_seconds(inputs, candidate, cost.compute);
  detail::add_loading(inputs, candidate, cost);
  return cost;
}

double peak_flops(const CostInputs& inputs, int ranks) {
  if (!inputs.on_gpu()) return ranks * device_rates(inputs, ranks).flops;
  double sum = 0;
  const auto count = std::min<std::size_t>(ranks, inputs.machine.gpus.size());
  for (std::size_t i = 0; i < count; ++i) {
    sum += gpu_rates(inputs.machine, i, inputs.config.precision.mode).flops;
  }
  return sum;
}

Prediction predict(const CostInputs& inputs, const Candidate& candidate) {
  Prediction prediction{.candidate = candidate,
                        .memory = memory_cost(inputs, candidate),
                        .time = time_cost(inputs, candidate)};
  prediction.limit = memory_limit(inputs, candidate).bytes;
  prediction.samples_per_second =
      static_cast<double>(candidate.global()) / prediction.time.step();
  return prediction;
}

std::vector<Scaling> predict_scaling(const CostInputs& inputs,
                                     const Candidate& candidate) {
  auto alone = candidate;
  alone.ranks = 1;
  alone.method = Method::single;
  const double one = predict(inputs, alone).samples_per_second;
  const auto devices = inputs.on_gpu() ? static_cast<int>(inputs.machine.gpus.size())
                                       : inputs.machine.physical_cores;
  std::vector<Scaling> list;
  for (const int ranks : std::set<int>{1, 2, 4, 8, candidate.ranks}) {
    if (ranks > std::max(devices, candidate.ranks)) continue;
    auto several = candidate;
    several.ranks = ranks;
    const int group = candidate.shard_group;
    const bool divides = group > 0 && group < ranks && ranks % group == 0;
    several.shard_group = divides ? group : 0;
    if (ranks == 1) several.method = Method::single;
    if (ranks > 1 && several.method == Method::single) several.method = Method::ddp;
    const auto then = predict(inputs, several);
    list.push_back({ranks, then.samples_per_second / one, memory_lack(inputs, then)});
  }
  return list;
}

std::string_view name_of(Method method) noexcept {
  switch (method) {
    case Method::single:
      return "single";
    case Method::data_parallel:
      return "data_parallel";
    case Method::ddp:
      return "ddp";
    case Method::zero1:
      return "zero1";
    case Method::zero2:
      return "zero2";
    default:
      return "zero3";
  }
}

Method method_of_stage(int stage) noexcept {
  return stage == 1 ? Method::zero1 : stage == 2 ? Method::zero2 : Method::zero3;
}

int stage_of(Method method) noexcept {
  if (method < Method::zero1) return 0;
  return static_cast<int>(method) - static_cast<int>(Method::zero1) + 1;
}

}  // namespace lockstep::planner
