#include <algorithm>
#include <cmath>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/config/needs.h"
#include "lockstep/planner/detail/resolver.h"
#include "lockstep/planner/detail/search.h"

namespace lockstep::planner {
namespace {

using detail::Resolver;
using hardware::Gpu;
using hardware::Machine;

std::string compute_capability(const Gpu& gpu) {
  return str(gpu.compute_major, ".", gpu.compute_minor);
}

// Returns "an " before a name that is spelt, such as NVIDIA, else "a ".
std::string_view article_for(std::string_view name) {
  constexpr std::string_view kVowelSounds = "AEFHILMNORSX";
  const bool spelt = name.size() > 1 && name[1] >= 'A' && name[1] <= 'Z';
  const bool vowel = !name.empty() && kVowelSounds.find(name[0]) != name.npos;
  return spelt && vowel ? "an " : "a ";
}

void resolve_device(Resolver& r, const Machine& machine) {
  const auto note = machine.gpu_note.empty() ? "none was found" : machine.gpu_note;
  if (machine.gpus.empty()) {
    r.offer("parallel.device", "cpu", str("no GPU: ", note));
  } else {
    r.offer("parallel.device", "cuda",
            str("GPU 0 is ", article_for(machine.gpus[0].name), machine.gpus[0].name));
  }
  if (r.config().parallel.device == config::Device::cuda && machine.gpus.empty()) {
    r.refuse(Fault::hardware, "parallel.device",
             str("requested cuda, found no GPU: ", note,
                 "; set parallel.device=cpu or auto"));
  }
}

// bf16 and tf32 came with compute 8.0; below it they are missing or emulated.
bool has_tensor_formats(const Gpu& gpu) {
  return gpu.compute_major >= 8;
}

// Tensor cores for fp16 came with compute 7.0.
bool has_fast_fp16(const Gpu& gpu) {
  return gpu.compute_major >= 7;
}

// All ranks compute alike, so the weakest GPU decides.
const Gpu& weakest(const Machine& machine) {
  return *std::min_element(machine.gpus.begin(), machine.gpus.end(),
                           [](const Gpu& a, const Gpu& b) {
                             return std::pair(a.compute_major, a.compute_minor) <
                                    std::pair(b.compute_major, b.compute_minor);
                           });
}

void check_precision_of_cpu(Resolver& r) {
  if (r.config().precision.mode != config::Precision::tf32) return;
  r.refuse(Fault::config, "precision.mode",
           "tf32 is a format of GPUs, and parallel.device is cpu; set "
           "precision.mode=fp32");
}

void check_precision(Resolver& r, const Gpu& gpu) {
  using config::Precision;
  const auto mode = r.config().precision.mode;
  const bool needs_formats = mode == Precision::bf16 || mode == Precision::tf32 ||
                             mode == Precision::bf16_params;
  if (!needs_formats || has_tensor_formats(gpu)) return;
  r.refuse(Fault::hardware, "precision.mode",
           str(name_of(mode), " needs a GPU of compute 8.0, the ", gpu.name, " has ",
               compute_capability(gpu),
               "; set precision.mode=", has_fast_fp16(gpu) ? "fp16 or fp32" : "fp32"));
}

void resolve_precision(Resolver& r, const Machine& machine) {
  if (r.config().parallel.device == config::Device::cpu) {
    r.offer("precision.mode", "fp32", "default on a CPU");
    return check_precision_of_cpu(r);
  }
  const auto& gpu = weakest(machine);
  const auto compute = compute_capability(gpu);
  if (has_tensor_formats(gpu)) {
    r.offer("precision.mode", "bf16",
            str("compute ", compute, " >= 8.0 has fast bf16; fp32 weights"));
  } else if (has_fast_fp16(gpu)) {
    r.offer("precision.mode", "fp16",
            str("compute ", compute,
                " has fast fp16 and no bf16; loss scaling, fp32 weights"));
  }
  r.offer("precision.mode", "fp32",
          str("compute ", compute, " < 7.0 has neither fast fp16 nor bf16"));
  check_precision(r, gpu);
}

std::string gpu_count(std::size_t gpus) {
  return gpus == 1 ? "1 GPU" : str(gpus, " GPUs");
}

void check_device_ids(Resolver& r, const Machine& machine) {
  const auto gpus = machine.gpus.size();
  for (const int id : r.config().parallel.device_ids) {
    if (id < static_cast<int>(gpus)) continue;
    r.refuse(
        Fault::hardware, "parallel.device_ids",
        str("requested GPU ", id, ", found ", gpu_count(gpus), " (numbered from 0)"));
  }
}

void check_ranks_fit(Resolver& r, const Machine& machine) {
  const auto& parallel = r.config().parallel;
  if (parallel.device != config::Device::cuda) return;
  check_device_ids(r, machine);
  const auto gpus = static_cast<int>(machine.gpus.size());
  const auto ranks = parallel.ranks.value();
  if (!parallel.device_ids.empty() || ranks <= gpus) return;
  r.refuse(Fault::hardware, "parallel.ranks",
           str("requested ", ranks, " ranks, one for each GPU, found ", gpu_count(gpus),
               ": ", ranks, " > ", gpus, "; set parallel.ranks=", gpus,
               " or parallel.device=cpu"));
}

void offer_ranks(Resolver& r, const Machine& machine, const Preference& preference) {
  const auto& parallel = r.config().parallel;
  r.offer("parallel.ranks", preference.ranks, preference.ranks_because);
  const auto gpus = machine.gpus.size();
  const bool cuda = parallel.device == config::Device::cuda;
  if (parallel.strategy == config::Strategy::single) {
    r.offer("parallel.ranks", 1, "parallel.strategy is single");
  } else if (!parallel.device_ids.empty()) {
    r.offer("parallel.ranks", parallel.device_ids.size(),
            "one for each of parallel.device_ids");
  } else if (cuda && gpus > 1) {
    r.offer("parallel.ranks", gpus, str("one for each of ", gpus, " GPUs"));
  } else {
    r.offer("parallel.ranks", 1,
            cuda ? "there is 1 GPU" : "one process uses all cores");
  }
}

// Offers a strategy by the name that a recipe has for it.
void offer_method(Resolver& r, const Preference& preference, int ranks) {
  if (!preference.method || (*preference.method == Method::single) != (ranks == 1))
    return;
  const int stage = stage_of(*preference.method);
  if (stage == 0) {
    r.offer("parallel.strategy", name_of(*preference.method),
            preference.method_because);
  } else if (r.is_open("parallel.strategy")) {
    r.offer("parallel.strategy", "zero", preference.method_because);
    r.offer("parallel.zero_stage", stage, preference.method_because);
  }
}

void resolve_ranks(Resolver& r, const Machine& machine,
                   const detail::ZeroFacts& facts) {
  const auto& preference = facts.preference;
  const bool by_name = !r.is_open("parallel.ranks") || !r.is_open("parallel.strategy");
  const bool cuda = r.config().parallel.device == config::Device::cuda;
  offer_ranks(r, machine, preference);
  check_ranks_fit(r, machine);
  const auto ranks = r.config().parallel.ranks.value();
  offer_method(r, preference, ranks);
  if (ranks == 1) {
    r.offer("parallel.strategy", "single", "1 rank");
  } else {
    r.offer("parallel.strategy", "ddp",
            str(ranks, " ranks: replicated model, gradients all-reduced"));
  }
  detail::resolve_zero(r, facts);
  r.offer("parallel.on_setup_failure", by_name ? "stop" : "single",
          by_name ? "parallel.ranks or parallel.strategy is set"
                  : "default: ranks not set");
  if (r.config().parallel.strategy == config::Strategy::data_parallel) {
    r.offer("comm.backend", "local", "data_parallel: ranks are threads of one process");
  }
  r.offer("comm.backend", cuda ? "nccl_or_gloo" : "shm_or_gloo",
          cuda ? "nccl if it works, else gloo; decided at start"
               : "CPU tensors: shm on one host, else gloo; decided at start");
}

// Returns who updates which parameters, as far as a plan can tell.
std::string shard_update_because(const config::ParallelConfig& parallel) {
  switch (parallel.strategy) {
    case config::Strategy::zero:
      return "not used: parallel.strategy is zero, which shards the optimizer anyway";
    case config::Strategy::single:
      return "not used: parallel.strategy is single";
    default:
      break;
  }
  return parallel.device == config::Device::cuda
             ? "not used on GPUs: every rank updates all parameters"
             : "sharded optimizer step over shared memory; decided at start";
}

void resolve_buckets(Resolver& r) {
  const auto& parallel = r.config().parallel;
  if (!parallel.gradient_as_bucket_view) {
    r.offer(
        "parallel.shard_update", "off",
        "parallel.gradient_as_bucket_view=false keeps full gradients on every rank");
  }
  r.offer("parallel.shard_update", "shm", shard_update_because(parallel));
  if (!parallel.bucket_cap_mb.is_auto()) {
    const auto cap = parallel.bucket_cap_mb.value();
    r.offer("parallel.bucket_bytes", std::llround(cap * config::kMebibyte),
            str("parallel.bucket_cap_mb ", cap));
  }
  r.offer("parallel.bucket_bytes", "25MiB",
          "large enough for bandwidth, small enough to overlap");
  const auto bytes = static_cast<double>(parallel.bucket_bytes.value());
  r.offer("parallel.bucket_cap_mb", text::from_double(bytes / config::kMebibyte),
          "parallel.bucket_bytes");
}

constexpr int kMostThreads = 1024;  // of the knob

// A variable that is set decides, whatever the ranks; predictions need to know it.
void take_given_threads(Resolver& r, const Machine& machine) {
  if (const auto given = machine.omp_num_threads; given && *given <= kMostThreads) {
    r.offer("parallel.threads", *given, str("OMP_NUM_THREADS is ", *given));
  }
}

void resolve_threads(Resolver& r, const Machine& machine) {
  const int ranks = r.config().parallel.ranks.value();
  const auto shared = ranks > 1 ? str(" / parallel.ranks ", ranks) : "";
  const int cores = std::clamp(machine.physical_cores, 1, kMostThreads);
  r.offer("parallel.threads", std::max(1, cores / ranks),
          str("physical cores: ", cores, shared));
  const bool cuda = r.config().parallel.device == config::Device::cuda;
  r.offer("data.pin_memory", cuda ? "true" : "false",
          cuda ? "host-to-device copies overlap with compute"
               : "CPU training copies nothing to a device");
  if (!cuda && r.config().data.pin_memory.value()) {
    r.refuse(Fault::config, "data.pin_memory",
             "true, but parallel.device is cpu, which needs no copy; set "
             "data.pin_memory=auto");
  }
}

void resolve_memory(Resolver& r, const Preference& preference) {
  if (preference.recompute) {
    r.offer("memory.recompute_every", *preference.recompute ? 1 : 0,
            preference.recompute_because);
  }
  r.offer("memory.recompute_every", 0, "default: no activation checkpointing");
  if (preference.offload) {
    r.offer("memory.offload", *preference.offload ? "true" : "false",
            preference.offload_because);
  }
  r.offer("memory.offload", "false", "default: off unless nothing else fits");
  if (!r.config().memory.offload.value()) return;
  if (r.config().parallel.device == config::Device::cuda) return;
  r.refuse(Fault::config, "memory.offload",
           "true, but parallel.device is cpu: activations are in host memory already; "
           "set memory.offload=false");
}

void resolve_graph(Resolver& r) {
  const bool cuda = r.config().parallel.device == config::Device::cuda;
  r.offer(
      "train.graph", cuda ? "if_possible" : "off",
      cuda ? "whole steps are captured as CUDA graphs where possible; decided at start"
           : "CUDA graphs need a GPU");
  if (cuda || r.config().train.graph != config::Graph::on) return;
  r.refuse(Fault::config, "train.graph",
           "on, but parallel.device is cpu: CUDA graphs need a GPU; leave it at auto");
}

void resolve_length(Resolver& r) {
  const auto& train = r.config().train;
  const auto steps = train.steps.value_or(0);
  if (steps > 0) {
    r.offer("train.epochs", 0, str("set by train.steps=", steps));
  } else {
    r.offer("train.epochs", 1, "default: neither train.steps nor train.epochs is set");
    r.offer("train.steps", 0, str("set by train.epochs=", train.epochs.value()));
  }
  r.offer("eval.every", "epoch", "after every epoch, and at the end");
}

// Returns the machine with the GPUs of parallel.device_ids only.
Machine in_use(Resolver& r, Machine machine) {
  const auto& ids = r.config().parallel.device_ids;
  if (ids.empty() || r.config().parallel.device != config::Device::cuda) return machine;
  check_device_ids(r, machine);
  std::vector<Gpu> gpus;
  std::map<int, int> place;  // by its number before
  for (const int id : ids) {
    if (!place.emplace(id, static_cast<int>(gpus.size())).second) continue;
    gpus.push_back(machine.gpus[static_cast<std::size_t>(id)]);
  }
  std::vector<hardware::GpuPair> pairs;
  for (auto pair : machine.gpu_pairs) {
    if (!place.contains(pair.first) || !place.contains(pair.second)) continue;
    pair.first = place[pair.first];
    pair.second = place[pair.second];
    pairs.push_back(pair);
  }
  machine.gpus = std::move(gpus);
  machine.gpu_pairs = std::move(pairs);
  return machine;
}

}  // namespace

Plan resolve(config::Loaded wanted, const Machine& whole, const Knowledge& knowledge) {
  config::validate(wanted);
  Resolver resolver(std::move(wanted));
  resolve_device(resolver, whole);
  const auto machine = in_use(resolver, whole);
  resolve_precision(resolver, machine);
  take_given_threads(resolver, machine);
  auto constraints = constraints_of(resolver.config());
  const auto wanted_knobs = constraints;
  auto [preference, candidates] = detail::ask_policy(resolver, machine, knowledge);
  resolve_ranks(resolver, whole, {machine, knowledge, preference});
  resolve_buckets(resolver);
  resolve_threads(resolver, machine);
  detail::resolve_batch(resolver, preference);
  detail::resolve_prefetch(resolver, machine, knowledge);
  resolve_memory(resolver, preference);
  detail::resolve_workers(resolver, machine, knowledge);
  resolve_graph(resolver);
  resolve_length(resolver);
  resolver.validate();
  auto plan = resolver.take();
  plan.notes = config::unused_knobs(plan.config);
  if (knowledge.model && candidates.empty()) {
    constraints.global = plan.config.config.batch.global.value();
    const CostInputs inputs{plan.config.config, machine, *knowledge.model,
                            knowledge.correction};
    candidates = outcomes(inputs, constraints);
  }
  plan.candidates = std::move(candidates);
  detail::add_predictions(plan, {whole, machine, knowledge, wanted_knobs});
  return plan;
}

void refuse_auto(const Plan& plan) {
  if (plan.choices.empty()) return;
  std::vector<std::vector<std::string>> rows;
  rows.reserve(plan.choices.size());
  for (const auto& choice : plan.choices) {
    rows.push_back({str("  ", choice.key, "=", choice.value), "# " + choice.because});
  }
  const auto lines = text::table(rows);
  throw Error(Fault::config, "--no-auto: knobs left auto: ", plan.choices.size(),
              "; set them, or drop --no-auto to get:\n",
              lines.substr(0, lines.size() - 1));
}

std::vector<CandidateOutcome> survey(config::Loaded wanted, const Machine& whole,
                                     const Knowledge& knowledge) {
  if (!knowledge.model) return {};
  Resolver resolver(std::move(wanted));
  resolve_device(resolver, whole);
  const auto machine = in_use(resolver, whole);
  resolve_precision(resolver, machine);
  const CostInputs inputs{resolver.config(), machine, *knowledge.model,
                          knowledge.correction};
  return outcomes(inputs, constraints_of(resolver.config()));
}

}  // namespace lockstep::planner
