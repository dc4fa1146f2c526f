#include "lockstep/monitor/catalogue.h"

#include <array>

#include "lockstep/base/str.h"
#include "lockstep/config/eval.h"

namespace lockstep::monitor {
namespace {

constexpr auto kTraining = MetricScope::training;
constexpr auto kGpu = MetricScope::gpu;
constexpr auto kHost = MetricScope::host;
constexpr auto kGauge = MetricKind::gauge;
constexpr auto kCounter = MetricKind::counter;
constexpr double kMib = 1.0 / (1 << 20);

constexpr std::array kCatalogue = {
    MetricInfo{"step", kTraining, kCounter, "", "Optimizer steps done."},
    MetricInfo{"loss", kTraining, kGauge, "",
               "Mean loss over the samples (tokens) since the line before."},
    MetricInfo{"epoch", kTraining, kGauge, "",
               "Epochs: passes over the training data."},
    MetricInfo{"primary", kTraining, kGauge, "",
               "The primary metric, named by its label `metric`; in Prometheus only."},
    MetricInfo{"lr", kTraining, kGauge, "", "Learning rate."},
    MetricInfo{"gradient_norm", kTraining, kGauge, "",
               "Global gradient norm, before clipping."},
    MetricInfo{"samples_per_second", kTraining, kGauge, "1/s",
               "Samples of all ranks a second."},
    MetricInfo{"tokens_per_second", kTraining, kGauge, "1/s",
               "Tokens of all ranks a second."},
    MetricInfo{"step_seconds", kTraining, kGauge, "s", "Mean time of a step."},
    MetricInfo{"mfu_ratio", kTraining, kGauge, "ratio",
               "Model FLOPs of forward and backward (recomputing excluded) a second, "
               "over the peak of all devices at the precision in use."},
    MetricInfo{"data_wait_seconds", kTraining, kGauge, "s",
               "Time that rank 0 waited for data since the line before."},
    MetricInfo{"forward_seconds", kTraining, kGauge, "s",
               "Mean time of the forward passes of a step, over the ranks; of CPUs."},
    MetricInfo{"backward_seconds", kTraining, kGauge, "s",
               "Mean time of the backward passes of a step, over the ranks; of CPUs."},
    MetricInfo{"exchange_wait_seconds", kTraining, kGauge, "s",
               "Time that rank 0 waited for other ranks since the line before."},
    MetricInfo{"straggler_rank", kTraining, kGauge, "",
               "The rank whose gradients came last."},
    MetricInfo{"straggler_seconds", kTraining, kGauge, "s",
               "How much later than the mean of the others they came."},
    MetricInfo{"memory_bytes", kTraining, kGauge, "B",
               "Memory of rank 0's device that tensors use."},
    MetricInfo{"memory_reserved_bytes", kTraining, kGauge, "B",
               "Memory of rank 0's device that its allocator holds."},
    MetricInfo{"memory_peak_bytes", kTraining, kGauge, "B",
               "Peak of the memory that tensors used so far; on a CPU, that the "
               "process used."},
    MetricInfo{"checkpoint_seconds", kTraining, kGauge, "s",
               "Time of the last checkpoint."},
    MetricInfo{"samples", kTraining, kGauge, "", "Samples of the last evaluation."},
    MetricInfo{"seconds", kTraining, kGauge, "s", "Time of the last evaluation."},

    MetricInfo{"gpu_utilization_ratio", kGpu, kGauge, "ratio",
               "Share of the time in which a kernel ran.", "DCGM_FI_DEV_GPU_UTIL", 100},
    MetricInfo{"gpu_memory_utilization_ratio", kGpu, kGauge, "ratio",
               "Share of the time in which memory was read or written.",
               "DCGM_FI_DEV_MEM_COPY_UTIL", 100},
    MetricInfo{"gpu_memory_used_bytes", kGpu, kGauge, "B", "Memory in use.",
               "DCGM_FI_DEV_FB_USED", kMib},
    MetricInfo{"gpu_memory_free_bytes", kGpu, kGauge, "B", "Memory that is free.",
               "DCGM_FI_DEV_FB_FREE", kMib},
    MetricInfo{"gpu_memory_reserved_bytes", kGpu, kGauge, "B",
               "Memory that driver and firmware keep.", "DCGM_FI_DEV_FB_RESERVED",
               kMib},
    MetricInfo{"gpu_temperature_celsius", kGpu, kGauge, "C", "Temperature.",
               "DCGM_FI_DEV_GPU_TEMP"},
    MetricInfo{"gpu_power_watts", kGpu, kGauge, "W", "Power draw.",
               "DCGM_FI_DEV_POWER_USAGE"},
    MetricInfo{"gpu_energy_joules", kGpu, kCounter, "J",
               "Energy since the driver was loaded.",
               "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", 1000},
    MetricInfo{"gpu_sm_clock_hertz", kGpu, kGauge, "Hz",
               "Clock of the multiprocessors.", "DCGM_FI_DEV_SM_CLOCK", 1e-6},
    MetricInfo{"gpu_memory_clock_hertz", kGpu, kGauge, "Hz", "Clock of the memory.",
               "DCGM_FI_DEV_MEM_CLOCK", 1e-6},
    MetricInfo{"gpu_throttled", kGpu, kGauge, "",
               "1 while power, temperature or hardware slow the GPU down."},
    MetricInfo{"gpu_ecc_corrected", kGpu, kCounter, "",
               "Memory errors that were corrected."},
    MetricInfo{"gpu_ecc_uncorrected", kGpu, kCounter, "",
               "Memory errors that could not be corrected."},
    MetricInfo{"gpu_pcie_replays", kGpu, kCounter, "", "PCIe packets sent again.",
               "DCGM_FI_DEV_PCIE_REPLAY_COUNTER"},
    MetricInfo{"gpu_nvlink_sent_bytes", kGpu, kCounter, "B", "Sent over NVLinks."},
    MetricInfo{"gpu_nvlink_received_bytes", kGpu, kCounter, "B",
               "Received over NVLinks."},

    MetricInfo{"cpu_utilization_ratio", kHost, kGauge, "ratio",
               "Share of the machine's CPU time in use."},
    MetricInfo{"process_cpu_cores", kHost, kGauge, "cores",
               "Cores that rank 0's process keeps busy."},
    MetricInfo{"process_memory_bytes", kHost, kGauge, "B",
               "Resident memory of rank 0's process."},
    MetricInfo{"host_memory_used_bytes", kHost, kGauge, "B", "Memory in use."},
    MetricInfo{"host_memory_total_bytes", kHost, kGauge, "B",
               "Memory of the machine or the container."},
    MetricInfo{"process_read_bytes", kHost, kCounter, "B",
               "Read from disks by rank 0's process."},
    MetricInfo{"process_written_bytes", kHost, kCounter, "B",
               "Written to disks by rank 0's process."},
    MetricInfo{"disk_free_bytes", kHost, kGauge, "B",
               "Free disk space where the run directory is."},
    MetricInfo{"network_received_bytes", kHost, kCounter, "B",
               "Received by the machine, loopback excluded."},
    MetricInfo{"network_sent_bytes", kHost, kCounter, "B",
               "Sent by the machine, loopback excluded."},
};

constexpr std::string_view title_of(MetricScope scope) {
  switch (scope) {
    case MetricScope::training:
      return "Training";
    case MetricScope::gpu:
      return "GPUs";
    default:
      return "The host";
  }
}

}  // namespace

std::span<const MetricInfo> catalogue() noexcept {
  return kCatalogue;
}

const MetricInfo* find_metric(std::string_view name) noexcept {
  for (const auto& metric : kCatalogue) {
    if (metric.name == name) return &metric;
  }
  return nullptr;
}

std::string help_of(std::string_view metric) {
  if (const auto* known = find_metric(metric)) return std::string(known->help);
  for (std::size_t i = 0; i < config::names_of(config::EvalMetric{}).size(); ++i) {
    const auto [part, help] = config::words_of(static_cast<config::EvalMetric>(i));
    if (metric.find(part) != std::string_view::npos) {
      return str(help, " (eval.metrics).");
    }
  }
  for (const auto& [part, help] : config::kUnaskedWords) {
    if (metric.find(part) != std::string_view::npos) return str(help, ".");
  }
  return str("Metric '", metric, "' of the run's task or program.");
}

std::string prometheus_name(std::string_view metric) {
  constexpr std::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  std::string name = "lockstep_";
  for (const char c : metric) {
    name += kLetters.find(c) == std::string_view::npos ? '_' : c;
  }
  const auto* info = find_metric(metric);
  return info != nullptr && info->kind == MetricKind::counter ? name + "_total" : name;
}

std::string catalogue_markdown() {
  std::string text =
      "# Metrics\n\nEvery number that a run writes. This page is made from "
      "monitor/catalogue.cpp.\n";
  for (const auto scope : {kTraining, kGpu, kHost}) {
    text += str("\n## ", title_of(scope),
                "\n\n| metric | unit | in Prometheus | what |\n|---|---|---|---|\n");
    for (const auto& metric : kCatalogue) {
      if (metric.scope != scope) continue;
      text += str("| `", metric.name, "` | ", metric.unit, " | `",
                  prometheus_name(metric.name), "`",
                  metric.dcgm.empty() ? "" : str(", `", metric.dcgm, "`"), " | ",
                  metric.help, " |\n");
    }
  }
  return text;
}

}  // namespace lockstep::monitor
