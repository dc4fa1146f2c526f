#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

// Every metric, declared once: files, sinks, documents and the dashboard follow.
namespace lockstep::monitor {

enum class MetricKind { gauge, counter };

// The owner of a number: training (train and eval lines), a GPU, or the host.
enum class MetricScope { training, gpu, host };

struct MetricInfo {
  std::string_view name;  // <what>_<unit>, as in metrics.jsonl
  MetricScope scope = MetricScope::training;
  MetricKind kind = MetricKind::gauge;
  std::string_view unit;  // "" for a pure number
  std::string_view help;
  // The name of NVIDIA's DCGM exporter, with the factor from ours to theirs.
  std::string_view dcgm = {};
  double dcgm_factor = 1;
};

std::span<const MetricInfo> catalogue() noexcept;

// Returns null for a metric of eval.metrics or of a user's program: names are free.
const MetricInfo* find_metric(std::string_view name) noexcept;

// Returns a sentence about any metric, those of eval.metrics and of programs included.
std::string help_of(std::string_view metric);

// Turns "loss" into "lockstep_loss"; letters that Prometheus does not take become '_',
// and counters end in _total.
std::string prometheus_name(std::string_view metric);

// Returns the text of docs/reference/metrics.md.
std::string catalogue_markdown();

}  // namespace lockstep::monitor
