// metrics.csv: a row for each number, so that a metric that comes later needs no new
// column and a file that was cut off is still a table.
#include <fstream>

#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/monitor/sink.h"

namespace lockstep::monitor {
namespace {

constexpr std::string_view kHeader = "time,step,split,metric,gpu,value,attempt";

// Returns text for a cell: a metric's name with a comma or a quote is quoted.
std::string cell(std::string_view text) {
  if (text.find_first_of(",\"\r\n") == std::string_view::npos) return std::string(text);
  std::string quoted = "\"";
  for (const char c : text) quoted += c == '"' ? "\"\"" : std::string(1, c);
  return quoted + "\"";
}

class CsvSink : public Sink {
 public:
  explicit CsvSink(const SinkContext& context)
      : clock_(context.clock), rows_(context.run.path() / "metrics.csv") {
    // A restarted run appends to its file; one of an older version has no column for
    // the attempt.
    const auto header = first_line(context.run.path() / "metrics.csv");
    if (header.empty()) rows_.write(kHeader);
    if (header.empty() || header == kHeader) end_ = str(",", context.attempt);
  }

  std::string_view name() const noexcept override { return "csv"; }

  void metrics(const Metrics& metrics) override {
    const auto time = text::from_double(unix_seconds(clock_.wall()));
    std::string rows;
    for (const auto& [metric, value] : numbers_of(metrics)) {
      rows += str(rows.empty() ? "" : "\n", time, ",", metrics.step, ",",
                  name_of(metrics.split), ",", cell(metric), ",,",
                  text::from_double(value), end_);
    }
    rows_.write(rows);
  }

  void system(const SystemSample& sample) override {
    const auto time = text::from_double(sample.time);
    std::string rows;
    for (const auto& reading : sample.readings) {
      rows += str(rows.empty() ? "" : "\n", time, ",", sample.step, ",system,",
                  reading.name, ",", reading.gpu ? str(*reading.gpu) : "", ",",
                  text::from_double(reading.value), end_);
    }
    if (!rows.empty()) rows_.write(rows);
  }

  void finish(const RunEnd&) override { rows_.sync(); }

 private:
  // Returns "" for a file that is empty.
  static std::string first_line(const files::Path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
  }

  const Clock& clock_;
  files::LineWriter rows_;
  std::string end_;  // of every row
};

}  // namespace

std::unique_ptr<Sink> make_csv_sink(const SinkContext& context) {
  return std::make_unique<CsvSink>(context);
}

}  // namespace lockstep::monitor
