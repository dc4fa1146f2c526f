// metrics.jsonl and system.jsonl of the run directory.
#include "lockstep/base/str.h"
#include "lockstep/monitor/sink.h"

namespace lockstep::monitor {
namespace {

class JsonlSink : public Sink {
 public:
  explicit JsonlSink(const SinkContext& context)
      : metrics_(context.run.metrics(), context.clock), system_(context.run.system()) {}

  std::string_view name() const noexcept override { return "jsonl"; }

  void metrics(const Metrics& metrics) override { metrics_.write(metrics); }

  void system(const SystemSample& sample) override {
    std::vector<run::NamedValue> line{{"time", sample.time}, {"step", sample.step}};
    for (const auto& reading : sample.readings) {
      auto name = std::string(reading.name);
      if (reading.gpu) name += str(".", *reading.gpu);
      line.push_back({std::move(name), reading.value});
    }
    system_.write(run::to_json_line(line));
  }

  void finish(const RunEnd&) override {
    metrics_.sync();
    system_.sync();
  }

 private:
  MetricsWriter metrics_;
  files::LineWriter system_;
};

}  // namespace

std::unique_ptr<Sink> make_jsonl_sink(const SinkContext& context) {
  return std::make_unique<JsonlSink>(context);
}

}  // namespace lockstep::monitor
