// Shows the newest numbers to Prometheus: a file that is replaced with every sample,
// and a port to scrape.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <mutex>

#include <fcntl.h>
#include <unistd.h>

#include "lockstep/base/error.h"
#include "lockstep/base/leftovers.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/monitor/catalogue.h"
#include "lockstep/monitor/detail/prometheus_text.h"
#include "lockstep/monitor/detail/text_server.h"
#include "lockstep/monitor/sink.h"

namespace lockstep::monitor {
namespace {

using detail::Labels;

std::string_view name_of(MetricKind kind) {
  return kind == MetricKind::counter ? "counter" : "gauge";
}

class PrometheusSink : public Sink {
 public:
  explicit PrometheusSink(const SinkContext& context)
      : run_(context.run.read_record().id),
        host_(run::record_of_this_process().host),
        file_(context.config.prometheus_file.empty()
                  ? context.run.path() / "metrics.prom"
                  : files::Path(context.config.prometheus_file)),
        dcgm_names_(context.config.dcgm_names),
        gpus_(context.gpus),
        primary_(context.primary.name) {
    files::sweep_leftovers(file_.parent_path());
    try {
      write_file();  // one that can not be written shows now
    } catch (const Error& error) {
      throw Error(error.fault(), "monitor.prometheus_file: ", error.what());
    }
    if (context.config.prometheus_port == 0) return;
    server_.emplace(context.config.prometheus_address, context.config.prometheus_port,
                    [this] {
                      const std::lock_guard lock(mutex_);
                      return text_.render();
                    });
    log::info("monitor", str("prometheus: http://", context.config.prometheus_address,
                             ":", server_->port(), "/metrics"));
  }

  std::string_view name() const noexcept override { return "prometheus"; }

  void metrics(const Metrics& metrics) override {
    const std::lock_guard lock(mutex_);
    const auto split = std::string(monitor::name_of(metrics.split));
    if (metrics.split == Split::train) {
      set("step", {{"run", run_}}, static_cast<double>(metrics.step));
    }
    for (const auto& [metric, value] : numbers_of(metrics)) {
      set(metric, {{"run", run_}, {"split", split}}, value);
      // One name for the panels and alerts of runs with different tasks.
      if (metric != primary_) continue;
      set("primary", {{"run", run_}, {"split", split}, {"metric", primary_}}, value);
    }
  }

  void live(const SystemSample& sample) override {
    {
      const std::lock_guard lock(mutex_);
      for (const auto& reading : sample.readings) add(reading);
    }
    write_file();
  }

  void finish(const RunEnd&) override { write_file(); }

 private:
  void set(std::string_view metric, const Labels& labels, double value) {
    const auto* info = find_metric(metric);
    text_.set({.name = prometheus_name(metric),
               .help = help_of(metric),
               .type = std::string(
                   name_of(info != nullptr ? info->kind : MetricKind::gauge))},
              labels, value);
  }

  void add(const Reading& reading) {
    Labels labels{{"run", run_}};
    if (!reading.gpu) return set(reading.name, labels, reading.value);
    const auto found = std::find_if(
        gpus_.begin(), gpus_.end(),
        [&](const hardware::Gpu& one) { return one.index == *reading.gpu; });
    if (found == gpus_.end()) return;
    labels.emplace_back("gpu", str(*reading.gpu));
    labels.emplace_back("uuid", found->uuid);
    set(reading.name, labels, reading.value);
    if (dcgm_names_) add_dcgm(reading, *found);
  }

  void add_dcgm(const Reading& reading, const hardware::Gpu& gpu) {
    const auto* info = find_metric(reading.name);
    if (info == nullptr || info->dcgm.empty()) return;
    text_.set({.name = std::string(info->dcgm),
               .help = std::string(info->help),
               .type = std::string(name_of(info->kind))},
              {{"gpu", str(gpu.nvml_index)},
               {"UUID", gpu.uuid},
               {"pci_bus_id", gpu.pci_id},
               {"device", str("nvidia", gpu.nvml_index)},
               {"modelName", gpu.name},
               {"hostname", host_}},
              reading.value * info->dcgm_factor);
  }

  // The file is renamed into place, so that a collector never sees half of it; not
  // synced, because the next one comes in a second.
  void write_file() {
    std::string text;
    {
      const std::lock_guard lock(mutex_);
      text = text_.render();
    }
    const auto target = files::replaceable(file_);
    // The next start knows by this name what a kill has left (base/leftovers.h).
    const auto beside = target.parent_path() /
                        str(".", target.filename().string(), ".", owner_, ".new");
    try {
      const files::Descriptor file(
          ::open(beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
      if (!file) files::fail("write", file_, errno);
      files::write_all(file.get(), text, file_);
      if (::rename(beside.c_str(), target.c_str()) != 0) {
        files::fail("replace", file_, errno);
      }
    } catch (...) {
      ::unlink(beside.c_str());
      throw;
    }
  }

  const std::string run_, host_;
  const std::string owner_ = files::owner_mark();
  const files::Path file_;
  const bool dcgm_names_;
  const std::vector<hardware::Gpu>& gpus_;
  const std::string primary_;
  std::mutex mutex_;  // guards text_: the server reads it
  detail::PrometheusText text_;
  std::optional<detail::TextServer> server_;  // last: ends before what it reads
};

}  // namespace

std::unique_ptr<Sink> make_prometheus_sink(const SinkContext& context) {
  return std::make_unique<PrometheusSink>(context);
}

}  // namespace lockstep::monitor
