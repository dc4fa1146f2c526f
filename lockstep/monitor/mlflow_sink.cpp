// mlflow.jsonl: the bodies of requests to an MLflow tracking server, a line each, which
// jobs::MlflowSync sends. A worker that waits for a network trains nothing.
#include <cmath>

#include <nlohmann/json.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/monitor/sink.h"
#include "lockstep/run/knobs.h"

namespace lockstep::monitor {
namespace {

using Json = nlohmann::ordered_json;

// Limits of MLflow's log-batch.
constexpr std::size_t kMostParams = 100;
constexpr std::size_t kMostMetrics = 1000;
constexpr std::size_t kLongestParam = 500;

// JSON has no NaN; the server takes these words, as protocol buffers write them.
Json mlflow_number(double value) {
  if (std::isnan(value)) return "NaN";
  if (std::isinf(value)) return value > 0 ? "Infinity" : "-Infinity";
  return value;
}

// Letters, digits and a few signs are all that a name may have.
std::string mlflow_key(std::string_view name) {
  constexpr std::string_view kMore = "_-. :/";
  std::string key(name);
  for (auto& c : key) {
    const bool is_good = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                         (c >= '0' && c <= '9') ||
                         kMore.find(c) != std::string_view::npos;
    if (!is_good) c = '_';
  }
  return key;
}

class MlflowSink : public Sink {
 public:
  explicit MlflowSink(const SinkContext& context)
      : clock_(context.clock), path_(context.run.path() / "mlflow.jsonl") {
    std::error_code ignored;
    const bool is_new = !std::filesystem::exists(path_, ignored);
    lines_.emplace(path_);
    // What a run was asked for does not change when it is taken up again.
    if (is_new) write_params(context.run);
    write_primary(context.primary);
  }

  std::string_view name() const noexcept override { return "mlflow"; }

  void metrics(const Metrics& metrics) override {
    Json batch = Json::array();
    for (const auto& [metric, value] : numbers_of(metrics)) {
      batch.push_back(entry({tag_of(metrics.split, metric), value},
                            unix_seconds(clock_.wall()), metrics.step));
    }
    write_metrics(batch);
  }

  void system(const SystemSample& sample) override {
    Json batch = Json::array();
    for (const auto& reading : sample.readings) {
      batch.push_back(
          entry({tag_of(reading), reading.value}, sample.time, sample.step));
    }
    write_metrics(batch);
  }

  void finish(const RunEnd& end) override {
    const auto* status = end.exit == kExitOk        ? "FINISHED"
                         : end.exit == kExitStopped ? "KILLED"
                                                    : "FAILED";
    write({{"status", status}});
    lines_->sync();
  }

 private:
  static Json entry(const std::pair<std::string, double>& metric, double time,
                    std::int64_t step) {
    constexpr double kMillisecondsPerSecond = 1000;
    return {{"key", mlflow_key(metric.first)},
            {"value", mlflow_number(metric.second)},
            {"timestamp", static_cast<std::int64_t>(time * kMillisecondsPerSecond)},
            {"step", step}};
  }

  // MLflow has no place of its own for the metric that counts: a search finds tags.
  void write_primary(const Headline& primary) {
    const auto tag = [](const char* key, const std::string& value) {
      return Json{{"key", key}, {"value", value}};
    };
    write({{"tags",
            {tag("lockstep.primary_metric",
                 mlflow_key(tag_of(Split::eval, primary.name))),
             tag("lockstep.primary_metric_goal",
                 primary.more_is_better ? "maximize" : "minimize")}}});
  }

  void write_params(const run::RunDirectory& run) {
    Json params = Json::array();
    for (const auto& [key, value] : run::read_knobs(run.config())) {
      params.push_back(
          {{"key", mlflow_key(key)}, {"value", value.substr(0, kLongestParam)}});
      if (params.size() < kMostParams) continue;
      write({{"params", params}});
      params.clear();
    }
    if (!params.empty()) write({{"params", params}});
  }

  void write_metrics(const Json& batch) {
    for (std::size_t i = 0; i < batch.size(); i += kMostMetrics) {
      const auto end = std::min(batch.size(), i + kMostMetrics);
      write({{"metrics", Json(batch.begin() + static_cast<std::ptrdiff_t>(i),
                              batch.begin() + static_cast<std::ptrdiff_t>(end))}});
    }
  }

  void write(const Json& line) {
    lines_->write(line.dump(-1, ' ', false, Json::error_handler_t::replace));
  }

  const Clock& clock_;
  const files::Path path_;
  std::optional<files::LineWriter> lines_;
};

}  // namespace

std::unique_ptr<Sink> make_mlflow_sink(const SinkContext& context) {
  return std::make_unique<MlflowSink>(context);
}

}  // namespace lockstep::monitor
