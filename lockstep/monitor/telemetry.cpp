#include "lockstep/monitor/telemetry.h"

#include <algorithm>

#include <nlohmann/json.hpp>
#include <signal.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"

namespace lockstep::monitor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kKept = 3600;  // an hour of samples

// Returns "gpu_power_watts.0".
std::string series_name(const Reading& reading) {
  return reading.gpu ? str(reading.name, ".", *reading.gpu) : std::string(reading.name);
}

// Signals are for the threads that wait for them.
void block_signals() {
  sigset_t all;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, nullptr);
}

}  // namespace

Telemetry::Telemetry(const run::RunDirectory& run, const config::MonitorConfig& config,
                     const Site& site)
    : run_(run),
      config_(config),
      say_(site.say),
      clock_(site.clock),
      events_(run.events(), clock_),
      attempt_(1 + run::count_events(run.events(), "started")),
      probe_({.run_directory = run.path(),
              .root = site.root,
              .clock = clock_,
              .gpus = site.gpus}),
      alerts_(config, probe_.gpus()) {
  for (const auto kind : config_.sinks) {
    try {
      auto sink = make_sink(kind, {.run = run_,
                                   .config = config_,
                                   .gpus = probe_.gpus(),
                                   .clock = clock_,
                                   .attempt = attempt_,
                                   .primary = site.primary});
      if (sink) sinks_.push_back(std::move(sink));
    } catch (const std::exception& error) {
      failed(name_of(kind), error.what());
    }
  }
  if (config_.sample_every.count() > 0) {
    thread_ = std::jthread([this](const std::stop_token& stop) { run_thread(stop); });
  }
}

Telemetry::~Telemetry() {
  thread_.request_stop();
}

void Telemetry::run_thread(const std::stop_token& stop) {
  block_signals();
  std::unique_lock lock(waiting_);
  while (!stop.stop_requested()) {
    wake_.wait_for(lock, stop, config_.sample_every, [] { return false; });
    if (!stop.stop_requested()) try_sample(false);
  }
}

void Telemetry::metrics(const Metrics& given) {
  auto metrics = given;
  metrics.attempt = attempt_;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, value] : numbers_of(metrics)) {
    series_.try_emplace(tag_of(metrics.split, name), kKept).first->second.add(value);
  }
  guarded([&](Sink& sink) { sink.metrics(metrics); });
  tell(alerts_.metrics(metrics, clock_.now()));
}

void Telemetry::step(std::int64_t step) noexcept {
  step_.store(step, std::memory_order_relaxed);
  stepped_.store(clock_.now().time_since_epoch().count(), std::memory_order_relaxed);
}

void Telemetry::sample() {
  take_sample(false);
}

// A probe that fails costs a sample, not the run.
void Telemetry::try_sample(bool is_last) {
  try {
    take_sample(is_last);
  } catch (const std::exception& error) {
    if (probe_failed_.exchange(true)) return;
    log::warning("monitor", str("a sample of the machine could not be taken, and "
                                "others may be missing, too: ",
                                error.what()));
  }
}

void Telemetry::take_sample(bool is_last) {
  const auto now = clock_.now();
  const bool open = window_began_ && now - *window_began_ < config_.system_every;
  const bool closes = !open || is_last;
  auto sample =
      probe_.read(closes ? hardware::Counters::all : hardware::Counters::quick);
  sample.step = step_.load(std::memory_order_relaxed);
  const std::lock_guard lock(mutex_);
  keep(sample);
  guarded([&](Sink& sink) { sink.live(sample); });
  const auto stepped = stepped_.load(std::memory_order_relaxed);
  const auto last_step = stepped == 0
                             ? std::nullopt
                             : std::optional(SteadyTime(SteadyTime::duration(stepped)));
  tell(alerts_.sample(sample, now, last_step));
  if (!closes) return;
  const auto window = window_of(sample);
  guarded([&](Sink& sink) { sink.system(window); });
  window_began_ = now;
  in_window_ = 0;
}

// Returns means of gauges since the window before; counters as they are.
SystemSample Telemetry::window_of(const SystemSample& sample) {
  auto window = sample;
  for (auto& reading : window.readings) {
    const auto* info = find_metric(reading.name);
    if (info == nullptr || info->kind == MetricKind::counter) continue;
    reading.value = series_.at(series_name(reading)).recent_mean(in_window_);
  }
  return window;
}

void Telemetry::keep(const SystemSample& sample) {
  ++in_window_;
  for (const auto& reading : sample.readings) {
    series_.try_emplace(series_name(reading), kKept).first->second.add(reading.value);
    if (!reading.gpu) continue;
    auto& energy = energy_[*reading.gpu];
    if (reading.name == "gpu_energy_joules") {
      if (!energy.counted) energy.first = reading.value;
      energy.last = reading.value;
      energy.counted = true;
    }
    if (reading.name == "gpu_power_watts") {
      if (energy.before) {
        const auto [time, watts] = *energy.before;
        energy.integral += (sample.time - time) * (watts + reading.value) / 2;
      }
      energy.before = {sample.time, reading.value};
    }
  }
}

double Telemetry::energy_joules() const {
  double joules = 0;
  for (const auto& [gpu, energy] : energy_) {
    joules += energy.counted ? energy.last - energy.first : energy.integral;
  }
  return joules;
}

// Takes out sinks that fail. The mutex is held.
void Telemetry::guarded(const std::function<void(Sink&)>& use) {
  std::erase_if(sinks_, [&](const std::unique_ptr<Sink>& sink) {
    try {
      use(*sink);
      return false;
    } catch (const std::exception& error) {
      failed(sink->name(), error.what());
      return true;
    }
  });
}

void Telemetry::failed(std::string_view sink, const std::string& reason) {
  log::warning("monitor", str("sink ", sink, " is left out from now on: ", reason));
  try {
    events_.write("sink_failed", {{"sink", std::string(sink)}, {"reason", reason}});
  } catch (const Error&) {
    // A full disk may be why it failed, and the log has said it.
  }
}

void Telemetry::tell(const std::vector<Alert>& alerts) {
  for (const auto& alert : alerts) {
    std::vector<run::NamedValue> fields{{"rule", alert.rule},
                                        {"raised", alert.raised},
                                        {"step", step_.load(std::memory_order_relaxed)},
                                        {"text", alert.text}};
    if (alert.gpu) fields.push_back({"gpu", std::int64_t{*alert.gpu}});
    try {
      events_.write("alert", fields);
    } catch (const Error& error) {
      log::warning("monitor", error.what());
    }
    if (alert.raised) {
      log::warning("monitor", alert.text);
    } else {
      log::info("monitor", alert.text);
    }
  }
}

std::string Telemetry::summary_json() const {
  const std::lock_guard lock(mutex_);
  constexpr double kJoulesPerKwh = 3.6e6;
  Json json;
  json["energy_kwh"] = nullptr;  // where no GPU tells its power
  if (!energy_.empty()) json["energy_kwh"] = energy_joules() / kJoulesPerKwh;
  json["metrics"] = Json::object();
  for (const auto& [name, series] : series_) {
    const auto stats = series.stats();
    json["metrics"][name] = {{"count", stats.count}, {"mean", stats.mean},
                             {"min", stats.min},     {"max", stats.max},
                             {"p50", stats.p50},     {"p95", stats.p95},
                             {"p99", stats.p99}};
  }
  return json.dump(2) + "\n";
}

void Telemetry::finish(const RunEnd& end) {
  if (thread_.joinable()) {
    thread_.request_stop();
    thread_.join();
    try_sample(true);  // a short run has one, too, and a long one its end
  }
  try {
    files::write_atomically(run_.summary(), summary_json());
  } catch (const Error& error) {
    log::warning("monitor", error.what());
  }
  const std::lock_guard lock(mutex_);
  guarded([&](Sink& sink) {
    sink.finish(end);
    if (const auto note = sink.note(); !note.empty() && say_) say_(note);
  });
  sinks_.clear();
}

}  // namespace lockstep::monitor
