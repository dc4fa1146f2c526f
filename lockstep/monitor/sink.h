#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/config/monitor.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/monitor/system_probe.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::monitor {

// The metric that counts, and whether more of it is better.
struct Headline {
  std::string name = "loss";
  bool more_is_better = false;
};

// The run that a sink writes down.
struct SinkContext {
  const run::RunDirectory& run;
  const config::MonitorConfig& config;
  const std::vector<hardware::Gpu>& gpus;
  const Clock& clock = Clock::system();
  std::int64_t attempt = 1;  // of the run
  Headline primary = {};
};

struct RunEnd {
  int exit = 0;
  std::int64_t steps = 0;
};

// A place that numbers go to. It may throw Error: the caller leaves it out from then on
// and says so, and the run goes on.
//
// Threads: one at a time.
class Sink {
 public:
  virtual ~Sink() = default;

  virtual std::string_view name() const noexcept = 0;

  virtual void metrics(const Metrics& metrics) = 0;
  // Gets the newest sample, as often as there is one.
  virtual void live(const SystemSample&) {}
  // Gets means since the call before, now and then (monitor.system_every).
  virtual void system(const SystemSample&) {}
  // Called last. Without it the process has died.
  virtual void finish(const RunEnd&) {}
  // Returns what a user should know at the end, "" if nothing.
  virtual std::string note() const { return ""; }
};

// Returns the sink for a name; null for the console, which is not a file.
std::unique_ptr<Sink> make_sink(config::Sink kind, const SinkContext& context);

// Returns loss, then the numbers of `more`; text is left out.
std::vector<std::pair<std::string, double>> numbers_of(const Metrics& metrics);

// Returns "train/loss", "gpu0/gpu_power_watts", "host/cpu_utilization_ratio".
std::string tag_of(Split split, std::string_view metric);
std::string tag_of(const Reading& reading);

}  // namespace lockstep::monitor
