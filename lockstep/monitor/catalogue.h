#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

// Every metric, declared once: files, sinks, documents and the dashboard follow.
namespace lockstep::monitor {

enum class MetricKind { gauge, counter };

// Whose number it is: of training (train and eval lines), of a GPU, of the host.
enum class MetricScope { training, gpu, host };

struct MetricInfo {
  std::string_view name;  // <what>_<unit>, as in metrics.jsonl
  MetricScope scope = MetricScope::training;
  MetricKind kind = MetricKind::gauge;
  std::string_view unit;  // "" for a pure number
  std::string_view help;
  // What NVIDIA's DCGM exporter calls it, with the factor from ours to theirs.
  std::string_view dcgm = {};
  double dcgm_factor = 1;
};

std::span<const MetricInfo> catalogue() noexcept;

// Nothing for a metric of eval.metrics or of somebody's program: these have free names.
const MetricInfo* find_metric(std::string_view name) noexcept;

// "loss" -> "lockstep_loss"; letters that Prometheus does not take become '_', and
// counters end in _total.
std::string prometheus_name(std::string_view metric);

// docs/reference/metrics.md.
std::string catalogue_markdown();

}  // namespace lockstep::monitor
