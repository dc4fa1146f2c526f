#include <algorithm>
#include <cmath>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/planner/plan.h"

namespace lockstep::planner {
namespace {

using config::Config;
using hardware::Gpu;
using hardware::Machine;

// Keeps the plan while it is being made. Every knob is offered; only those that were
// `auto` take the offer.
class Resolver {
 public:
  explicit Resolver(config::Loaded wanted) : plan_{std::move(wanted), {}} {
    const auto keys = config::auto_keys(plan_.config);
    open_ = {keys.begin(), keys.end()};
  }

  template <typename Value>
  void offer(const std::string& key, const Value& value, const std::string& because) {
    if (open_.erase(key) == 0) return;
    const auto text = str(value);
    config::set(plan_.config, key, text, {config::Origin::planner, because});
    plan_.choices.push_back({key, text, because});
  }

  bool is_open(const std::string& key) const { return open_.count(key) > 0; }

  // For what was asked for and can not be had on this machine.
  [[noreturn]] void refuse(Fault fault, const std::string& key,
                           const std::string& text) {
    const auto place = config::place_of(plan_.config.sources[key]);
    throw Error(fault, place, place.empty() ? "" : ": ", key, ": ", text);
  }

  const Config& config() const { return plan_.config.config; }
  void validate() const { config::validate(plan_.config); }
  Plan take() {
    LOCKSTEP_CHECK(open_.empty(), "no rule for ", *open_.begin());
    return std::move(plan_);
  }

 private:
  Plan plan_;
  std::set<std::string> open_;
};

std::string compute_of(const Gpu& gpu) {
  return str(gpu.compute_major, ".", gpu.compute_minor);
}

void resolve_device(Resolver& r, const Machine& machine) {
  const auto note = machine.gpu_note.empty() ? "none was found" : machine.gpu_note;
  if (machine.gpus.empty()) {
    r.offer("parallel.device", "cpu", str("no GPU: ", note));
  } else {
    r.offer("parallel.device", "cuda", str("GPU 0 is a ", machine.gpus[0].name));
  }
  if (r.config().parallel.device == config::Device::cuda && machine.gpus.empty()) {
    r.refuse(Fault::hardware, "parallel.device",
             str("cuda was asked for, but there is no GPU: ", note,
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

void check_precision_of_cpu(Resolver& r) {
  if (r.config().precision.mode != config::Precision::tf32) return;
  r.refuse(Fault::config, "precision.mode",
           "tf32 is a format of GPUs, and parallel.device is cpu; set "
           "precision.mode=fp32");
}

void check_precision_of(Resolver& r, const Gpu& gpu) {
  using config::Precision;
  const auto mode = r.config().precision.mode;
  const bool needs_formats = mode == Precision::bf16 || mode == Precision::tf32 ||
                             mode == Precision::bf16_params;
  if (!needs_formats || has_tensor_formats(gpu)) return;
  r.refuse(Fault::hardware, "precision.mode",
           str(name_of(mode), " needs a GPU of compute 8.0, the ", gpu.name, " has ",
               compute_of(gpu),
               "; set precision.mode=", has_fast_fp16(gpu) ? "fp16 or fp32" : "fp32"));
}

void resolve_precision(Resolver& r, const Machine& machine) {
  if (r.config().parallel.device == config::Device::cpu) {
    r.offer("precision.mode", "fp32", "a CPU computes in fp32");
    return check_precision_of_cpu(r);
  }
  const auto& gpu = machine.gpus[0];
  const auto compute = compute_of(gpu);
  if (has_tensor_formats(gpu)) {
    r.offer("precision.mode", "bf16",
            str("compute ", compute, " >= 8.0 has fast bf16; the weights stay fp32"));
  } else if (has_fast_fp16(gpu)) {
    r.offer(
        "precision.mode", "fp16",
        str("compute ", compute,
            " has fast fp16 and no bf16; the loss is scaled, the weights stay fp32"));
  }
  r.offer("precision.mode", "fp32",
          str("compute ", compute, " < 7.0 has neither fast fp16 nor bf16"));
  check_precision_of(r, gpu);
}

std::string gpu_count(std::size_t gpus) {
  return gpus == 1 ? "is 1" : str("are ", gpus);
}

void check_ranks_fit(Resolver& r, const Machine& machine) {
  const auto& parallel = r.config().parallel;
  if (parallel.device != config::Device::cuda) return;
  const auto gpus = static_cast<int>(machine.gpus.size());
  for (const int id : parallel.device_ids) {
    if (id < gpus) continue;
    r.refuse(Fault::hardware, "parallel.device_ids",
             str("GPU ", id, " was asked for, but there ", gpu_count(gpus),
                 ", counted from 0"));
  }
  const auto ranks = parallel.ranks.value();
  if (!parallel.device_ids.empty() || ranks <= gpus) return;
  r.refuse(Fault::hardware, "parallel.ranks",
           str(ranks, " ranks were asked for, one for each GPU, but there ",
               gpu_count(gpus), ": ", ranks, " > ", gpus, "; set parallel.ranks=", gpus,
               " or parallel.device=cpu"));
}

void offer_ranks(Resolver& r, const Machine& machine) {
  const auto& parallel = r.config().parallel;
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
    r.offer("parallel.ranks", 1, cuda ? "there is 1 GPU" : "one rank uses all cores");
  }
}

void resolve_ranks(Resolver& r, const Machine& machine) {
  const bool by_name = !r.is_open("parallel.ranks") || !r.is_open("parallel.strategy");
  const bool cuda = r.config().parallel.device == config::Device::cuda;
  offer_ranks(r, machine);
  check_ranks_fit(r, machine);
  const auto ranks = r.config().parallel.ranks.value();
  if (ranks == 1) {
    r.offer("parallel.strategy", "single", "there is 1 rank");
  } else {
    r.offer("parallel.strategy", "ddp",
            str(ranks, " ranks, each with the whole model, sum their gradients"));
  }
  r.offer("parallel.on_setup_failure", by_name ? "stop" : "single",
          by_name ? "ranks or strategy were asked for by name"
                  : "nobody asked for more than one rank");
  if (r.config().parallel.strategy == config::Strategy::data_parallel) {
    r.offer("comm.backend", "local", "the ranks are threads of one process");
  }
  r.offer("comm.backend", cuda ? "nccl_or_gloo" : "shm_or_gloo",
          cuda ? "shows when the ranks meet"
               : "tensors are on the CPU; shows when the ranks meet");
}

void resolve_buckets(Resolver& r) {
  const auto& parallel = r.config().parallel;
  if (!parallel.gradient_as_bucket_view) {
    r.offer("parallel.shard_update", "off",
            "parallel.gradient_as_bucket_view=false promises whole gradients");
  }
  r.offer("parallel.shard_update", "shm",
          "ranks that share memory change parameters together; shows when they meet");
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

void resolve_threads(Resolver& r, const Machine& machine) {
  constexpr int kMostThreads = 1024;  // of the knob
  if (const auto given = machine.omp_num_threads; given && *given <= kMostThreads) {
    r.offer("parallel.threads", *given, str("OMP_NUM_THREADS is ", *given));
  }
  const int ranks = r.config().parallel.ranks.value();
  const auto shared = ranks > 1 ? str(" / parallel.ranks ", ranks) : "";
  const int cores = std::clamp(machine.physical_cores, 1, kMostThreads);
  r.offer("parallel.threads", std::max(1, cores / ranks),
          str("physical cores: ", cores, shared));
  const int logical = std::max(1, machine.logical_cores);
  constexpr int kMostWorkers = 3;  // a batch of small images is little work
  r.offer("data.workers", std::clamp(logical / ranks - 1, 1, kMostWorkers),
          str("cores: ", logical, shared, ", one is left to the step, at most ",
              kMostWorkers));
  r.offer("data.prefetch", 4, "enough to hide a slow batch, little memory");
  const bool cuda = r.config().parallel.device == config::Device::cuda;
  r.offer("data.pin_memory", cuda ? "true" : "false",
          cuda ? "the GPU fetches a batch while it computes with the one before"
               : "there is no GPU to fetch from it");
  if (!cuda && r.config().data.pin_memory.value()) {
    r.refuse(Fault::config, "data.pin_memory",
             "true, but parallel.device is cpu, which needs no copy; set "
             "data.pin_memory=auto");
  }
}

void offer_global(Resolver& r) {
  const auto& batch = r.config().batch;
  const auto ranks = r.config().parallel.ranks.value();
  if (!batch.per_rank.is_auto()) {
    const auto per_rank = batch.per_rank.value();
    r.offer("batch.global", per_rank * ranks,
            str("batch.per_rank ", per_rank, " * parallel.ranks ", ranks));
  } else if (!batch.micro.is_auto() && !batch.accumulation.is_auto()) {
    const auto micro = batch.micro.value();
    const auto accumulation = batch.accumulation.value();
    r.offer("batch.global", micro * accumulation * ranks,
            str("batch.micro ", micro, " * batch.accumulation ", accumulation,
                " * parallel.ranks ", ranks));
  } else {
    r.offer("batch.global", config::kDefaultGlobalBatch,
            "the usual size, no batch was named");
  }
}

// Whether the micro-batch is found by trying; `open`: nobody has said how large.
void offer_search(Resolver& r, bool open) {
  const auto& config = r.config();
  const bool limited =
      config.parallel.device == config::Device::cuda || config.memory.host_limit > 0;
  const bool fails_alone = !config.parallel.sync_batch_norm;
  if (open && limited && fails_alone) {
    r.offer("memory.find_micro", "true",
            str("batch.micro is auto: the largest that fits memory.target ",
                text::from_double(config.memory.target), " is found by trying"));
  }
  r.offer("memory.find_micro", "false",
          !open          ? "the size of a micro-batch was named"
          : !fails_alone ? "parallel.sync_batch_norm: no rank may run out alone"
                         : "the host has memory enough for a whole share");
  if (!config.memory.find_micro.value()) return;
  if (!limited) {
    r.refuse(Fault::config, "memory.find_micro",
             "true, but the memory of a CPU has no limit to try; set "
             "memory.host_limit, or memory.find_micro=false");
  }
  if (!fails_alone) {
    r.refuse(Fault::config, "memory.find_micro",
             "true, but with parallel.sync_batch_norm no rank may run out of memory "
             "alone; switch one of them off");
  }
}

void resolve_batch(Resolver& r) {
  const auto ranks = r.config().parallel.ranks.value();
  offer_global(r);
  r.validate();  // refuses what does not divide, with the arithmetic
  const auto& batch = r.config().batch;
  const auto global = batch.global.value();
  r.offer("batch.per_rank", global / ranks,
          str("batch.global ", global, " / parallel.ranks ", ranks));
  const auto per_rank = batch.per_rank.value();
  const bool open = batch.micro.is_auto() && batch.accumulation.is_auto();
  if (batch.micro.is_auto()) {
    r.offer("batch.accumulation", 1, "the share of a rank goes through at once");
  } else {
    r.offer("batch.accumulation", per_rank / batch.micro.value(),
            str("batch.per_rank ", per_rank, " / batch.micro ", batch.micro.value()));
  }
  offer_search(r, open);
  const auto accumulation = batch.accumulation.value();
  r.offer("batch.micro", per_rank / accumulation,
          str("batch.per_rank ", per_rank, " / batch.accumulation ", accumulation));
  const bool cuda = r.config().parallel.device == config::Device::cuda;
  const auto micro = batch.micro.value();
  r.offer("batch.eval", std::max<std::int64_t>(micro, cuda ? 1024 : 256),
          str("no gradients to keep; batch.micro ", micro, " if that were more"));
}

void check_offload(Resolver& r) {
  if (!r.config().memory.offload) return;
  if (r.config().parallel.device == config::Device::cuda) return;
  r.refuse(Fault::config, "memory.offload",
           "true, but parallel.device is cpu: activations are in the host's memory "
           "already; set memory.offload=false");
}

void resolve_length(Resolver& r) {
  const auto& train = r.config().train;
  const auto steps = train.steps.value_or(0);
  if (steps > 0) {
    r.offer("train.epochs", 0, str("train.steps ", steps, " decides"));
  } else {
    r.offer("train.epochs", 1, "neither train.steps nor train.epochs was named");
    r.offer("train.steps", 0, str("train.epochs ", train.epochs.value(), " decides"));
  }
  r.offer("eval.every", "epoch", "once for each pass over the data, and at the end");
  const auto& watched = r.config().early_stop.metric;
  const bool cost = watched == "loss" || watched == "perplexity";
  r.offer("early_stop.mode", cost ? "min" : "max",
          str(cost ? "less " : "more ", watched, " is better"));
  r.offer("memory.recompute_every", 0, "all activations are kept as long as they fit");
}

[[noreturn]] void refuse_auto(const std::vector<Choice>& choices) {
  std::vector<std::vector<std::string>> rows;
  rows.reserve(choices.size());
  for (const auto& choice : choices) {
    rows.push_back({str("  ", choice.key, "=", choice.value), "# " + choice.because});
  }
  const auto lines = text::table(rows);
  throw Error(Fault::config, "--no-auto: knobs left auto: ", choices.size(),
              "; set them, or drop --no-auto to get:\n",
              lines.substr(0, lines.size() - 1));
}

}  // namespace

Plan resolve(config::Loaded wanted, const Machine& machine, bool allow_auto) {
  config::validate(wanted);
  Resolver resolver(std::move(wanted));
  resolve_device(resolver, machine);
  resolve_precision(resolver, machine);
  resolve_ranks(resolver, machine);
  resolve_buckets(resolver);
  resolve_threads(resolver, machine);
  resolve_batch(resolver);
  check_offload(resolver);
  resolve_length(resolver);
  resolver.validate();
  auto plan = resolver.take();
  if (!allow_auto && !plan.choices.empty()) refuse_auto(plan.choices);
  return plan;
}

}  // namespace lockstep::planner
