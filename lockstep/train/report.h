#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/models/model.h"
#include "lockstep/monitor/console.h"
#include "lockstep/monitor/events.h"
#include "lockstep/monitor/heartbeat.h"
#include "lockstep/monitor/metrics.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/train/step.h"

namespace lockstep::train {

// The numbers of the steps since the last report.
struct TrainReport {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double epoch = 0;
  Tally::Means means;
  double lr = 0;
  double samples_per_second = 0;
  double data_wait_seconds = 0;
  std::int64_t memory_bytes = 0;
};

struct EvalReport {
  std::int64_t step = 0;
  double epoch = 0;
  Tally::Means means;
  double seconds = 0;
};

// What a run came to.
struct Result {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  double train_seconds = 0;  // without evaluation
  double seconds = 0;
  std::optional<double> train_loss;  // of the last report
  std::optional<Tally::Means> eval;  // the last one
  double best_accuracy = 0;
  std::int64_t memory_bytes = 0;  // the largest seen
  int stopped_by = 0;             // the signal that ended it early, or 0
  bool out_of_time = false;       // train.max_time ended it
  std::string weights;            // file, "" if none was written
};

// The table for people, and one JSON object for programs.
std::string to_table(const Result& result);
std::string to_json(const Result& result);
std::string model_table(const models::Model& model);

// Where the numbers of a run go: the terminal, metrics.jsonl, events.jsonl and the
// heartbeat. The loop emits; it never prints. Every rank has one; those of rank 0 go
// everywhere, of the others only the heartbeat is kept: in the run directory, and where
// LOCKSTEP_HEARTBEAT says that a launcher looks for it.
class Reporter {
 public:
  Reporter(const monitor::RunDirectory& run, const config::MonitorConfig& config,
           monitor::Console& console, int rank = 0, int ranks = 1);

  void model(const models::Model& model);
  void started(std::int64_t total_steps);
  void train(const TrainReport& report);
  void eval(const EvalReport& report);
  // A step is done: the heartbeat and the live line move on.
  void step(std::int64_t step);
  void beat(std::int64_t step, monitor::Phase phase) noexcept;
  void finished(const Result& result);

 private:
  monitor::Console& console_;
  const bool first_;  // rank 0
  bool show_ = true;
  std::optional<monitor::MetricsWriter> metrics_;
  std::optional<monitor::EventWriter> events_;
  std::vector<std::unique_ptr<monitor::HeartbeatWriter>> heartbeats_;
};

}  // namespace lockstep::train
