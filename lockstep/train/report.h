#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/config/config.h"
#include "lockstep/models/model.h"
#include "lockstep/monitor/console.h"
#include "lockstep/monitor/efficiency.h"
#include "lockstep/monitor/telemetry.h"
#include "lockstep/monitor/timeline.h"
#include "lockstep/run/events.h"
#include "lockstep/run/heartbeat.h"
#include "lockstep/run/run_directory.h"
#include "lockstep/task/tally.h"
#include "lockstep/train/window.h"

namespace lockstep::train {

// The numbers of the steps since the last report.
struct TrainReport {
  std::int64_t step = 0;
  std::int64_t total_steps = 0;
  double epoch = 0;
  task::Means means;
  std::int64_t targets_per_sample = 1;
  bool targets_are_tokens = false;
  double lr = 0;
  std::optional<double> gradient_norm;
  double seconds = 0;        // that they took
  std::int64_t steps = 0;    // how many they were
  std::string backend;       // of the collectives
  bool is_modelled = false;  // the network is, of which one rank exists
  std::vector<RankWindow> ranks;
  std::optional<Straggler> straggler;  // none for a single rank

  double samples_per_second() const;
  double tokens_per_second() const;  // 0 where samples have none
  double step_seconds() const;       // a step; 0 where there was none
  // Both return seconds per step, in the mean over the ranks; 0: not known.
  double forward_seconds() const;
  double backward_seconds() const;
};

struct EvalReport {
  std::int64_t step = 0;
  double epoch = 0;
  task::Means means;
  double seconds = 0;
  bool is_best = false;
  std::int64_t memory_peak_bytes = 0;  // of rank 0's device, so far
};

struct CheckpointReport {
  std::int64_t step = 0;
  bool saved = false;
  std::string text;             // the directory, or why there is none
  bool goes_on = true;          // training does, if it failed
  std::int64_t bytes = 0;       // of this rank
  std::int64_t held_bytes = 0;  // of memory, until the next
  double blocked_seconds = 0;   // of training
  double seconds = 0;
};

// The result of a run.
struct Result {
  std::int64_t steps = 0;
  std::int64_t samples = 0;
  double train_seconds = 0;          // without evaluation, of all attempts
  double earlier_train_seconds = 0;  // of those, before this attempt
  double seconds = 0;                // of this attempt
  // These are of all steps together, in the mean over the ranks; 0: not known.
  double forward_seconds = 0;
  double backward_seconds = 0;
  std::optional<monitor::PhaseSplit> split;  // of profile.steps
  std::optional<double> train_loss;          // of the last report
  std::optional<task::Means> eval;           // the last one
  std::string primary = "loss";              // the metric that counts
  std::optional<double> best;                // of it
  std::int64_t skipped = 0;                  // steps whose gradients were not finite
  std::string ended_early;                   // why, if early_stop has ended it
  std::string already_over;                  // why there was nothing to do, else ""
  std::vector<memory::DeviceMemory>
      memory;                       // of each rank's device, at the last report
  int stopped_by = 0;               // the signal that ended it early, or 0
  int exit = 0;                     // the status of the command
  bool out_of_time = false;         // train.max_time ended it
  std::string weights;              // file, "" if none was written
  std::string average;              // file of their average, "" if none was written
  bool eval_is_of_average = false;  // ema.evaluate: not of the last weights
  std::string checkpoint;           // from which a rerun goes on, "" if none was saved
  std::optional<std::int64_t> resumed_at;  // the step after which it went on
  std::string backend;                     // of the collectives
  bool is_modelled = false;                // the network is
};

// These return a table for users, and one JSON object for programs.
std::string to_table(const Result& result);
std::string to_json(const Result& result);
std::string model_table(const models::Model& model);

// Writes the numbers of a run to the terminal, metrics.jsonl, events.jsonl and the
// heartbeat. The loop emits; it never prints. Every rank has one; those of rank 0 go
// everywhere, of the others only the heartbeat is kept: in the run directory, and where
// LOCKSTEP_HEARTBEAT says that a launcher looks for it.
class Reporter {
 public:
  struct Who {
    int rank = 0;
    int ranks = 1;
    // True for a thread of a process: the launcher sees rank 0's heartbeat only.
    bool is_replica = false;
    std::vector<int> gpus = {};  // of all ranks of this machine, as CUDA counts
  };
  struct Outputs {
    const run::RunDirectory& run;
    monitor::Console& console;
  };
  Reporter(const Outputs& outputs, const config::MonitorConfig& config, const Who& who);

  void model(const models::Model& model);
  // Sets the task's primary metric, which a line shows beside the loss.
  void primary(const task::Primary& primary) { primary_ = primary; }
  void started(std::int64_t total_steps, int ranks);
  void train(const TrainReport& report);
  void eval(const EvalReport& report);
  // Reports the rank that the others wait for.
  void straggler(const TrainReport& report);
  // Reports new shares of the batch, as text, from the step after `after` on.
  void balance(std::int64_t step, std::int64_t after, const std::string& shares);
  // Reports that a rank had no memory for a step.
  struct OutOfMemory {
    std::int64_t step = 0;
    int rank = 0;
    std::string remedy;  // what is done about it
    std::string note;    // what follows for the results; goes to the log
  };
  void out_of_memory(const OutOfMemory& what);
  // Reports the size that memory.find_micro has found.
  void micro_batch(std::int64_t size, const std::string& how);
  // Reports how the model continues a prompt.
  void sample(std::int64_t step, const std::string& prompt, const std::string& text);
  // Reports that a run resumes after this step. Call it after started().
  void resumed(std::int64_t step, const std::string& from);
  void checkpoint(const CheckpointReport& report);
  // Reports a step whose gradients were not finite.
  void skipped(std::int64_t step, double loss_scale);
  // Moves the heartbeat and the live line on when a step is done.
  void step(std::int64_t step);
  void beat(std::int64_t step, run::Phase phase) noexcept;
  void finished(const Result& result);

 private:
  std::vector<run::NamedValue> fields_of(const TrainReport& report) const;
  void memory(std::int64_t rank, const memory::DeviceMemory& memory);
  monitor::Telemetry& telemetry();  // of rank 0; opened when it is first needed

  monitor::Console& console_;
  const bool first_;  // rank 0
  const bool is_replica_;
  const bool quiet_;
  bool show_ = true;
  bool told_memory_ = false;
  std::map<int, double> warned_of_;  // stragglers, with their share of the time
  task::Primary primary_{.name = "loss", .better = task::Better::less};
  std::optional<monitor::Efficiency> efficiency_;  // where the plan knows it
  std::optional<double> checkpoint_seconds_;       // of the last one
  std::optional<run::EventWriter> events_;
  std::vector<std::unique_ptr<run::HeartbeatWriter>> heartbeats_;
  std::function<void()> open_telemetry_;
  std::unique_ptr<monitor::Telemetry> telemetry_;  // of rank 0, once it is needed
};

}  // namespace lockstep::train
