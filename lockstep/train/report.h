#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/models/model.h"
#include "lockstep/monitor/console.h"
#include "lockstep/monitor/efficiency.h"
#include "lockstep/monitor/events.h"
#include "lockstep/monitor/heartbeat.h"
#include "lockstep/monitor/run_directory.h"
#include "lockstep/monitor/telemetry.h"
#include "lockstep/monitor/timeline.h"
#include "lockstep/train/tally.h"
#include "lockstep/train/window.h"

namespace lockstep::train {

// The numbers of the steps since the last report.
struct TrainReport {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double epoch = 0;
  Means means;
  std::int64_t targets_per_sample = 1;
  bool targets_are_tokens = false;
  double lr = 0;
  std::optional<double> gradient_norm;
  double seconds = 0;      // that they took
  std::int64_t steps = 0;  // how many they were
  std::string backend;     // who moved the tensors
  std::vector<RankWindow> ranks;
  std::optional<Straggler> straggler;  // none for a single rank

  double samples_per_second() const;
  double tokens_per_second() const;  // 0 where samples have none
  double step_seconds() const;       // a step; 0 where there was none
  // A step, in the mean over the ranks; 0 where it is not known.
  double forward_seconds() const;
  double backward_seconds() const;
};

struct EvalReport {
  std::int64_t step = 0;
  double epoch = 0;
  Means means;
  double seconds = 0;
  bool is_best = false;
  std::int64_t memory_peak_bytes = 0;  // of rank 0's device, so far
};

struct CheckpointReport {
  std::int64_t step = 0;
  bool saved = false;
  std::string text;             // the directory, or why there is none
  std::int64_t bytes = 0;       // of this rank
  std::int64_t held_bytes = 0;  // of memory, until the next
  double blocked_seconds = 0;   // of training
  double seconds = 0;
};

// What a run came to.
struct Result {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  double train_seconds = 0;          // without evaluation, of all attempts
  double earlier_train_seconds = 0;  // of those, before this attempt
  double seconds = 0;                // of this attempt
  // Of all steps together, in the mean over the ranks; 0 where it is not known.
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::optional<monitor::PhaseSplit> split;  // of profile.steps
  std::optional<double> train_loss;          // of the last report
  std::optional<Means> eval;                 // the last one
  std::string primary = "loss";              // the metric that counts
  std::optional<double> best;                // of it
  std::int64_t skipped = 0;                  // steps whose gradients were not finite
  std::string ended_early;                   // why, if early_stop has ended it
  std::string already_over;                  // why there was nothing to do, else ""
  std::vector<DeviceMemory> memory;  // of each rank's device, at the last report
  int stopped_by = 0;                // the signal that ended it early, or 0
  bool out_of_time = false;          // train.max_time ended it
  std::string weights;               // file, "" if none was written
  std::string average;               // file of their average, "" if none was written
  bool eval_is_of_average = false;   // ema.evaluate: not of the last weights
  std::string checkpoint;            // from which a rerun goes on, "" if none was saved
  std::optional<std::int64_t> resumed_at;  // the step after which it went on
  std::string backend;                     // who moved the tensors of the ranks
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
  struct Who {
    int rank = 0;
    int ranks = 1;
    // A thread of a process: the launcher sees one rank, whose heart beats with rank 0.
    bool is_replica = false;
    std::vector<int> gpus = {};  // of all ranks of this machine, as CUDA counts
  };
  Reporter(const monitor::RunDirectory& run, const config::MonitorConfig& config,
           monitor::Console& console, const Who& who);

  void model(const models::Model& model);
  // The metric that the task says counts: what a line shows beside the loss.
  void primary(const std::string& name) { primary_ = name; }
  void started(std::int64_t total_steps, int ranks);
  void train(const TrainReport& report);
  void eval(const EvalReport& report);
  // The rank that the others wait for.
  void straggler(const TrainReport& report);
  // New shares of the batch, as text, from the step after `after` on.
  void balance(std::int64_t step, std::int64_t after, const std::string& shares);
  // A rank had no memory for a step; what is done about it.
  void out_of_memory(std::int64_t step, int rank, const std::string& remedy);
  // memory.find_micro has found it.
  void micro_batch(std::int64_t size, const std::string& how);
  // A run goes on after this step; after started().
  void resumed(std::int64_t step, const std::string& from);
  void checkpoint(const CheckpointReport& report);
  // Gradients were not finite.
  void skipped(std::int64_t step, double loss_scale);
  // A step is done: the heartbeat and the live line move on.
  void step(std::int64_t step);
  void beat(std::int64_t step, monitor::Phase phase) noexcept;
  void finished(const Result& result);

 private:
  std::vector<monitor::Field> fields_of(const TrainReport& report) const;
  void memory(std::int64_t rank, const DeviceMemory& memory);
  monitor::Telemetry& telemetry();  // of rank 0; opened when it is first needed

  monitor::Console& console_;
  const bool first_;  // rank 0
  const bool is_replica_;
  const bool quiet_;
  bool show_ = true;
  bool told_memory_ = false;
  std::string primary_ = "loss";
  std::optional<monitor::Efficiency> efficiency_;  // where the plan knows it
  std::optional<double> checkpoint_seconds_;       // of the last one
  std::optional<monitor::EventWriter> events_;
  std::vector<std::unique_ptr<monitor::HeartbeatWriter>> heartbeats_;
  std::function<void()> open_telemetry_;
  std::unique_ptr<monitor::Telemetry> telemetry_;  // of rank 0, once it is needed
};

}  // namespace lockstep::train
