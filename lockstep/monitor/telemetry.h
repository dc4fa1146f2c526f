#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/monitor/alerts.h"
#include "lockstep/monitor/catalogue.h"
#include "lockstep/monitor/series.h"
#include "lockstep/monitor/sink.h"
#include "lockstep/run/events.h"

namespace lockstep::monitor {

// Moves the numbers of a run: those of training come in through metrics(), those of
// the machine are sampled by a thread of its own; all go to the sinks that the
// config names. A sink that fails is left out, with a warning and an event; the run
// goes on.
//
// Threads: any.
class Telemetry {
 public:
  // Gets a sentence for the user at the terminal.
  using Say = std::function<void(const std::string&)>;

  // The machine that it watches.
  struct Site {
    // Those that the run computes on (hardware::Gpu::index): others are no business of
    // it.
    std::vector<int> gpus = {};
    Say say = {};
    const Clock& clock = Clock::system();
    hardware::Path root = "/";
    Headline primary = {};
  };
  Telemetry(const run::RunDirectory& run, const config::MonitorConfig& config,
            const Site& site);
  ~Telemetry();  // stops the thread; a run that was not finished stays so
  Telemetry(const Telemetry&) = delete;
  Telemetry& operator=(const Telemetry&) = delete;

  // Returns which attempt of the run this is, from 1 on: those before it have left an
  // event `started` each.
  std::int64_t attempt() const noexcept { return attempt_; }

  void metrics(const Metrics& given);
  // Call it when a step is done. It is two stores: cheap enough for every step.
  void step(std::int64_t step) noexcept;

  // Takes a sample, as the thread does every monitor.sample_every.
  void sample();

  // Writes summary.json and closes the sinks.
  void finish(const RunEnd& end);

  // Returns {"samples": n, "energy_kwh": ..., "metrics": {"gpu_power_watts.0": {...}}}.
  std::string summary_json() const;

 private:
  void take_sample(bool is_last);
  void try_sample(bool is_last);
  void run_thread(const std::stop_token& stop);
  void guarded(const std::function<void(Sink&)>& use);
  void failed(std::string_view sink, const std::string& reason);
  void tell(const std::vector<Alert>& alerts);
  void keep(const SystemSample& sample);
  SystemSample window_of(const SystemSample& sample);
  double energy_joules() const;

  const run::RunDirectory run_;
  const config::MonitorConfig config_;
  const Say say_;
  const Clock& clock_;
  run::EventWriter events_;
  const std::int64_t attempt_;  // of the run
  SystemProbe probe_;
  std::atomic<bool> probe_failed_{false};  // said once
  std::atomic<std::int64_t> step_{0};
  std::atomic<SteadyTime::rep> stepped_{0};  // when; 0: never

  mutable std::mutex mutex_;  // guards what follows
  std::vector<std::unique_ptr<Sink>> sinks_;
  Alerts alerts_;
  std::map<std::string, Series> series_;  // by series_name()
  std::size_t in_window_ = 0;
  std::optional<SteadyTime> window_began_;
  struct Energy {
    double first = 0, last = 0;  // the GPU's own counter
    double integral = 0;         // of the power, where there is no counter
    bool counted = false;
    std::optional<std::pair<double, double>> before;  // time, watts
  };
  std::map<int, Energy> energy_;

  std::mutex waiting_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: ends before what it uses
};

}  // namespace lockstep::monitor
