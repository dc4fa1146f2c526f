#pragma once

#include <array>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/units.h"
#include "lockstep/config/enums.h"
#include "lockstep/config/field.h"

namespace lockstep::config {

// The only list of sinks beside the console: X(name) is made by
// monitor::make_name_sink().
#define LOCKSTEP_SINKS(X) \
  X(jsonl)                \
  X(csv)                  \
  X(tensorboard)          \
  X(prometheus)           \
  X(wandb)                \
  X(mlflow)

#define LOCKSTEP_ENUMERATOR(name) name,
enum class Sink { console, LOCKSTEP_SINKS(LOCKSTEP_ENUMERATOR) };
#undef LOCKSTEP_ENUMERATOR

#define LOCKSTEP_NAME(name) std::string_view(#name),
constexpr auto names_of(Sink) {
  return std::array{std::string_view("console"), LOCKSTEP_SINKS(LOCKSTEP_NAME)};
}
#undef LOCKSTEP_NAME

enum class Verbosity { quiet, normal, debug };

constexpr std::array<std::string_view, 3> names_of(Verbosity) {
  return {"quiet", "normal", "debug"};
}

// The condition of alerts that look at the machine; others look at metrics.
inline constexpr std::string_view kAlerts =
    "monitor.alerts=true and monitor.sample_every>0";

struct MonitorConfig {
  std::vector<Sink> sinks = {Sink::console, Sink::jsonl};
  Verbosity verbosity = Verbosity::normal;
  units::Duration sample_every = std::chrono::seconds(1);
  units::Duration system_every = std::chrono::seconds(10);
  int prometheus_port = 0;
  std::string prometheus_address = "127.0.0.1";
  std::string prometheus_file;
  bool dcgm_names = false;
  std::string wandb_project = "lockstep";
  std::string wandb_entity;
  units::Duration wandb_sync_every = std::chrono::minutes(5);
  std::string mlflow_uri;
  std::string mlflow_experiment = "lockstep";
  units::Duration mlflow_sync_every = std::chrono::seconds(10);
  bool alerts = true;
  units::Duration alert_after = std::chrono::seconds(30);
  double alert_temperature = 85;
  double alert_memory = 0.97;
  double alert_utilization = 0.2;
  double alert_data_wait = 0.3;
  units::Duration alert_no_step = std::chrono::minutes(5);
};

template <typename Visitor>
void describe_alerts(MonitorConfig& c, Visitor& v) {
  v.field(
      "alerts", c.alerts,
      {.help = "Alerts: an event and a line on the terminal when something is wrong.",
       .affects = Affects::output});
  v.field("alert_after", c.alert_after,
          {.help = "How long a condition has to last before an alert begins or ends.",
           .affects = Affects::output,
           .needs = "monitor.alerts=true"});
  v.field("alert_temperature", c.alert_temperature,
          {.help = "Alert at this GPU temperature in degrees Celsius, or 3 below the "
                   "GPU's own limit if that is lower.",
           .range = between(0, 200),
           .affects = Affects::output,
           .needs = kAlerts});
  v.field("alert_memory", c.alert_memory,
          {.help = "Alert when more than this fraction of a GPU's or the host's memory "
                   "is in use.",
           .range = between(0, 1),
           .affects = Affects::output,
           .needs = kAlerts});
  v.field(
      "alert_utilization", c.alert_utilization,
      {.help =
           "Alert when a GPU is busy less than this fraction of the time; 0: never.",
       .range = between(0, 1),
       .affects = Affects::output,
       .needs = kAlerts});
  v.field(
      "alert_data_wait", c.alert_data_wait,
      {.help =
           "Alert when more than this fraction of the time is spent waiting for data.",
       .range = between(0, 1),
       .affects = Affects::output,
       .needs = "monitor.alerts=true"});
  v.field("alert_no_step", c.alert_no_step,
          {.help = "Alert when no step ends for this long while training; 0s: never.",
           .affects = Affects::output,
           .needs = kAlerts});
}

template <typename Visitor>
void describe_mlflow(MonitorConfig& c, Visitor& v) {
  v.field("mlflow_uri", c.mlflow_uri,
          {.help = "The tracking server of the mlflow sink, http://HOST:PORT; empty: "
                   "MLFLOW_TRACKING_URI.",
           .affects = Affects::output,
           .needs = "monitor.sinks=mlflow",
           .is_local = true});
  v.field("mlflow_experiment", c.mlflow_experiment,
          {.help = "The experiment of its runs; made if it is not there.",
           .affects = Affects::output,
           .needs = "monitor.sinks=mlflow"});
  v.field("mlflow_sync_every", c.mlflow_sync_every,
          {.help = "How often new metrics are sent; 0s: only at the end.",
           .affects = Affects::output,
           .needs = "monitor.sinks=mlflow"});
}

template <typename Visitor>
void describe(MonitorConfig& c, Visitor& v) {
  v.field("sinks", c.sinks,
          {.help = "Sinks of the metrics: the terminal, metrics.jsonl, and files for "
                   "other programs.",
           .affects = Affects::output});
  v.field("verbosity", c.verbosity,
          {.help = "Log level on the terminal.", .affects = Affects::output});
  v.field(
      "sample_every", c.sample_every,
      {.help = "How often GPUs, CPU, memory, disk and network are sampled; 0s: never.",
       .affects = Affects::output});
  v.field("system_every", c.system_every,
          {.help = "How often the mean of these samples goes to the sinks.",
           .affects = Affects::output,
           .needs = "monitor.sample_every>0"});
  v.field("prometheus_port", c.prometheus_port,
          {.help = "Port of the prometheus sink; 0: only the file.",
           .range = between(0, 65535),
           .affects = Affects::output,
           .needs = "monitor.sinks=prometheus",
           .is_local = true});
  v.field("prometheus_address", c.prometheus_address,
          {.help = "Address that it listens on; 0.0.0.0: all interfaces.",
           .affects = Affects::output,
           .needs = "monitor.sinks=prometheus and monitor.prometheus_port>0",
           .is_local = true});
  v.field(
      "prometheus_file", c.prometheus_file,
      {.help = "The prometheus sink's file, for node_exporter's textfile collector; "
               "empty: metrics.prom in the run directory.",
       .affects = Affects::output,
       .needs = "monitor.sinks=prometheus",
       .is_local = true});
  v.field("dcgm_names", c.dcgm_names,
          {.help = "Give GPUs in prometheus the names of NVIDIA's DCGM exporter, too.",
           .affects = Affects::output,
           .needs = "monitor.sinks=prometheus"});
  v.field("wandb_project", c.wandb_project,
          {.help = "The project of the wandb sink.",
           .affects = Affects::output,
           .needs = "monitor.sinks=wandb"});
  v.field(
      "wandb_entity", c.wandb_entity,
      {.help =
           "The entity (team or user) of the wandb sink; empty: whoever syncs the run.",
       .affects = Affects::output,
       .needs = "monitor.sinks=wandb"});
  v.field(
      "wandb_sync_every", c.wandb_sync_every,
      {.help = "How often `lockstep train` runs `wandb sync` while it trains, if "
               "WANDB_API_KEY is set and that program is there; 0s: only at the end.",
       .affects = Affects::output,
       .needs = "monitor.sinks=wandb"});
  describe_mlflow(c, v);
  describe_alerts(c, v);
}

}  // namespace lockstep::config
