#include "lockstep/monitor/metrics.h"

#include <algorithm>
#include <limits>

#include "lockstep/base/text.h"
#include "lockstep/monitor/metrics_text.h"

namespace lockstep::monitor {
namespace {

constexpr std::int64_t kTailBytes = 64 << 10;

std::optional<Split> split_of(std::string_view name) {
  if (name == "train") return Split::train;
  if (name == "eval") return Split::eval;
  return std::nullopt;
}

std::optional<Metrics> metrics_of(const std::string& line) {
  const auto fields = run::parse_json_line(line);
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
      const auto loss = run::number_of(field);
      if (loss) metrics.loss = *loss;
      has_loss = loss.has_value();
    } else if (field.name == "time") {
      metrics.time = run::number_of(field).value_or(0);
    } else if (field.name == "attempt") {
      const auto* attempt = std::get_if<std::int64_t>(&field.value);
      if (attempt != nullptr) metrics.attempt = *attempt;
    } else {
      metrics.more.push_back(field);
    }
  }
  if (!has_step || !has_split || !has_loss) return std::nullopt;
  return metrics;
}

std::vector<Metrics> metrics_in(const std::string& text) {
  std::vector<Metrics> lines;
  for (const auto& line : text::split(text, '\n')) {
    if (auto metrics = metrics_of(line)) lines.push_back(std::move(*metrics));
  }
  return each_step_once(std::move(lines));
}

// Returns whether `line` begins what a later attempt has written. Files of older
// versions do not say which it was: there the steps of training go back.
bool begins_again(const Metrics& line, const Metrics& before) {
  if (line.attempt != before.attempt) return true;
  return line.attempt == 0 && line.split == Split::train && line.step < before.step;
}

// Returns whether what `earlier` wrote has been made again by the time of `line`. The
// evaluation of a step may be left to the attempt after the one that made the step.
bool is_made_again(const Metrics& earlier, const Metrics& line) {
  if (earlier.step != line.step) return earlier.step > line.step;
  return line.split == Split::train || earlier.split == Split::eval;
}

}  // namespace

std::string_view name_of(Split split) noexcept {
  return split == Split::train ? "train" : "eval";
}

std::optional<PrimaryMetric> primary_of(const Metrics& metrics) {
  std::string name = "accuracy";
  for (const auto& field : metrics.more) {
    const auto* text = std::get_if<std::string>(&field.value);
    if (field.name == "primary" && text != nullptr) name = *text;
  }
  const auto value = name == "loss" ? std::optional(metrics.loss) : metrics.find(name);
  if (!value) return std::nullopt;
  return PrimaryMetric{name, *value};
}

std::optional<double> Metrics::find(std::string_view name) const {
  for (const auto& field : more) {
    if (field.name == name) return run::number_of(field);
  }
  return std::nullopt;
}

MetricsWriter::MetricsWriter(const files::Path& path, const Clock& clock)
    : lines_(path), clock_(clock) {}

void MetricsWriter::write(const Metrics& metrics) {
  std::vector<run::NamedValue> line{{"step", metrics.step},
                                    {"split", std::string(name_of(metrics.split))},
                                    {"loss", metrics.loss},
                                    {"time", unix_seconds(clock_.wall())}};
  if (metrics.attempt > 0) line.push_back({"attempt", metrics.attempt});
  line.insert(line.end(), metrics.more.begin(), metrics.more.end());
  lines_.write(run::to_json_line(line));
}

void MetricsWriter::sync() {
  lines_.sync();
}

std::vector<Metrics> each_step_once(std::vector<Metrics> lines) {
  std::vector<Metrics> kept;
  kept.reserve(lines.size());
  for (auto& line : lines) {
    if (!kept.empty() && begins_again(line, kept.back())) {
      std::erase_if(kept, [&](const Metrics& e) { return is_made_again(e, line); });
    }
    kept.push_back(std::move(line));
  }
  return kept;
}

std::vector<Metrics> parse_metrics(const std::string& text) {
  return metrics_in(text);
}

std::vector<Metrics> read_metrics(const files::Path& path) {
  return metrics_in(files::read_tail(path, std::numeric_limits<std::int64_t>::max()));
}

std::vector<Metrics> recent_metrics(const files::Path& path) {
  return metrics_in(files::read_tail(path, kTailBytes));
}

std::optional<Metrics> last_metrics(const files::Path& path, Split split) {
  const auto lines = recent_metrics(path);
  const auto last =
      std::find_if(lines.rbegin(), lines.rend(),
                   [&](const Metrics& line) { return line.split == split; });
  return last == lines.rend() ? std::nullopt : std::optional(*last);
}

}  // namespace lockstep::monitor
