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
  v.field("alerts", c.alerts,
          {.help = "Say when something is wrong: an event and a line on the terminal.",
           .affects = Affects::output});
  v.field("alert_after", c.alert_after,
          {.help = "How long a condition has to last, and to be over, to count.",
           .affects = Affects::output,
           .needs = "monitor.alerts=true"});
  v.field(
      "alert_temperature", c.alert_temperature,
      {.help = "A GPU at this many degrees Celsius; its own limit less 3 if that is "
               "lower.",
       .range = between(0, 200),
       .affects = Affects::output,
       .needs = kAlerts});
  v.field("alert_memory", c.alert_memory,
          {.help = "More than this share of a GPU's memory, or of the host's, in use.",
           .range = between(0, 1),
           .affects = Affects::output,
           .needs = kAlerts});
  v.field("alert_utilization", c.alert_utilization,
          {.help = "A GPU that computes less than this share of the time; 0: never.",
           .range = between(0, 1),
           .affects = Affects::output,
           .needs = kAlerts});
  v.field("alert_data_wait", c.alert_data_wait,
          {.help = "More than this share of the time spent waiting for data.",
           .range = between(0, 1),
           .affects = Affects::output,
           .needs = "monitor.alerts=true"});
  v.field("alert_no_step", c.alert_no_step,
          {.help = "No step for this long while training; 0s: never.",
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
          {.help = "How often it is sent what is new; 0s: only at the end.",
           .affects = Affects::output,
           .needs = "monitor.sinks=mlflow"});
}

template <typename Visitor>
void describe(MonitorConfig& c, Visitor& v) {
  v.field("sinks", c.sinks,
          {.help = "Where metrics go: the terminal, metrics.jsonl, and files for other "
                   "programs.",
           .affects = Affects::output});
  v.field("verbosity", c.verbosity,
          {.help = "How much is said on the terminal.", .affects = Affects::output});
  v.field("sample_every", c.sample_every,
          {.help = "How often GPUs, CPU, memory, disk and network are looked at; 0s: "
                   "never.",
           .affects = Affects::output});
  v.field("system_every", c.system_every,
          {.help = "How often the mean of these goes to the sinks.",
           .affects = Affects::output,
           .needs = "monitor.sample_every>0"});
  v.field("prometheus_port", c.prometheus_port,
          {.help = "Port at which the prometheus sink answers; 0: only the file.",
           .range = between(0, 65535),
           .affects = Affects::output,
           .needs = "monitor.sinks=prometheus",
           .is_local = true});
  v.field("prometheus_address", c.prometheus_address,
          {.help = "Address that it listens at; 0.0.0.0 for everybody.",
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
  v.field("wandb_entity", c.wandb_entity,
          {.help = "Its team or user; empty: whoever synchronises the run.",
           .affects = Affects::output,
           .needs = "monitor.sinks=wandb"});
  v.field("wandb_sync_every", c.wandb_sync_every,
          {.help = "How often `lockstep train` hands the run to `wandb sync` while it "
                   "goes on, if WANDB_API_KEY is set and that program is there; 0s: "
                   "only at the end.",
           .affects = Affects::output,
           .needs = "monitor.sinks=wandb"});
  describe_mlflow(c, v);
  describe_alerts(c, v);
}

}  // namespace lockstep::config
