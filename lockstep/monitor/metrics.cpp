#include "lockstep/monitor/metrics.h"

#include <limits>

#include "lockstep/base/text.h"

namespace lockstep::monitor {
namespace {

constexpr std::int64_t kTailBytes = 64 << 10;

std::optional<Split> split_of(std::string_view name) {
  if (name == "train") return Split::train;
  if (name == "eval") return Split::eval;
  return std::nullopt;
}

std::optional<Metrics> metrics_of(const std::string& line) {
  const auto fields = parse_json_line(line);
  if (!fields) return std::nullopt;
  Metrics metrics;
  bool has_step = false, has_split = false, has_loss = false;
  for (const auto& field : *fields) {
    if (field.name == "step") {
      const auto* step = std::get_if<std::int64_t>(&field.value);
      if (step != nullptr) metrics.step = *step;
      has_step = step != nullptr;
    } else if (field.name == "split") {
      const auto* name = std::get_if<std::string>(&field.value);
      const auto split = name == nullptr ? std::nullopt : split_of(*name);
      if (split) metrics.split = *split;
      has_split = split.has_value();
    } else if (field.name == "loss") {
      const auto loss = number_of(field);
      if (loss) metrics.loss = *loss;
      has_loss = loss.has_value();
    } else if (field.name == "time") {
      metrics.time = number_of(field).value_or(0);
    } else {
      metrics.more.push_back(field);
    }
  }
  if (!has_step || !has_split || !has_loss) return std::nullopt;
  return metrics;
}

}  // namespace

std::string_view name_of(Split split) noexcept {
  return split == Split::train ? "train" : "eval";
}

std::optional<double> Metrics::find(std::string_view name) const {
  for (const auto& field : more) {
    if (field.name == name) return number_of(field);
  }
  return std::nullopt;
}

MetricsWriter::MetricsWriter(const files::Path& path, const Clock& clock)
    : lines_(path), clock_(clock) {}

void MetricsWriter::write(const Metrics& metrics) {
  std::vector<Field> line{{"step", metrics.step},
                          {"split", std::string(name_of(metrics.split))},
                          {"loss", metrics.loss},
                          {"time", unix_seconds(clock_.wall())}};
  line.insert(line.end(), metrics.more.begin(), metrics.more.end());
  lines_.write(to_json_line(line));
}

void MetricsWriter::sync() {
  lines_.sync();
}

std::vector<Metrics> read_metrics(const files::Path& path) {
  std::vector<Metrics> all;
  const auto whole = files::read_tail(path, std::numeric_limits<std::int64_t>::max());
  for (const auto& line : text::split(whole, '\n')) {
    if (auto metrics = metrics_of(line)) all.push_back(std::move(*metrics));
  }
  return all;
}

std::vector<Metrics> recent_metrics(const files::Path& path) {
  std::vector<Metrics> recent;
  for (const auto& line : text::split(files::read_tail(path, kTailBytes), '\n')) {
    if (auto metrics = metrics_of(line)) recent.push_back(std::move(*metrics));
  }
  return recent;
}

std::optional<Metrics> last_metrics(const files::Path& path, Split split) {
  const auto lines = text::split(files::read_tail(path, kTailBytes), '\n');
  for (auto line = lines.rbegin(); line != lines.rend(); ++line) {
    auto metrics = metrics_of(*line);
    if (metrics && metrics->split == split) return metrics;
  }
  return std::nullopt;
}

}  // namespace lockstep::monitor
