#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"

// The run directory: the contract between the control plane and the data plane.
// docs/run_directory.md describes every file.
namespace lockstep::run {

class RunLock;

using Path = std::filesystem::path;

// The version of the directory's layout, "format" in run.json. A reader refuses a newer
// one.
inline constexpr int kRunFormat = 1;

// A directory with this file holds the runs of one `lockstep bench`; it is none itself.
inline constexpr std::string_view kBenchFile = "bench.json";

// Written to run.json by these names: existing ones never change.
enum class RunStatus { planned, running, stopping, done, failed, stopped };
std::string_view name_of(RunStatus state) noexcept;
std::optional<RunStatus> run_status_of(std::string_view name) noexcept;
bool is_final(RunStatus state) noexcept;  // done, failed, stopped

// Returns by how much a prediction was too high, as a share of what was measured: the
// only measure of an error, in the terminal, in the report and in files. 0: not known.
constexpr double prediction_error(double predicted, double measured) {
  return predicted > 0 && measured > 0 ? predicted / measured - 1 : 0;
}

// A machine is busy if other processes take more of its cores.
inline constexpr double kBusyShare = 0.25;

// The predicted and measured values of a run; 0: not known.
struct Comparison {
  double memory_predicted_bytes = 0;  // of a rank, at its peak
  double memory_measured_bytes = 0;
  double step_predicted_seconds = 0;
  double step_measured_seconds = 0;
  double step_spread = 0;   // error of past runs, as a share; 0: not known
  double others_share = 0;  // of the cores, that other processes took meanwhile

  // Steps of a busy machine are slower than they are alone: they do not say how right
  // a prediction was.
  bool is_busy() const noexcept { return others_share > kBusyShare; }
};

struct RunRecord {
  std::string id;        // the directory's name; filled in by create()
  std::string recipe;    // path as given, "" if none
  std::string command;   // as it was typed
  std::string started;   // iso_time(); filled in by create() when empty
  std::string finished;  // iso_time(), or "" while it has not ended
  std::string host;
  int pid = 0;                     // of the process that watches the run (the launcher)
  std::int64_t process_start = 0;  // when that process started, in the kernel's ticks
  RunStatus state = RunStatus::planned;
  std::optional<int> exit;               // the exit status of the command
  std::string message;                   // why it failed or was stopped
  std::optional<Comparison> comparison;  // of a run that is done
};

// Returns a record with host, pid and process_start of the calling process.
RunRecord record_of_this_process();

// Returns false when the process of a run is known to be gone: same host, and no such
// process, or another one that has its number now.
bool may_be_alive(const RunRecord& record);

// The contents of a new run directory from the first moment on.
struct NewRun {
  std::string name;  // "": the next free number, 0001, 0002, ...
  RunRecord record;
  std::string config_yaml;
  std::string plan_json;
  // Gets the lock of the new run, if not null: it is held before others can see it.
  std::optional<RunLock>* lock = nullptr;
};

// What becomes of a run.
struct StatusChange {
  RunStatus state;
  std::optional<int> exit;
  std::string message;
};

// Threads: one at a time. Processes: only the launcher updates run.json; each rank
// writes its own log and error file; rank 0 writes metrics and events.
class RunDirectory {
 public:
  // Makes all or nothing: complete in a hidden sibling, fsynced and renamed into place.
  // A taken name is Fault::config, an unwritable or full parent Fault::io; nothing is
  // left behind. Two processes that ask for a number at the same time get different
  // ones.
  static RunDirectory create(const Path& parent, const NewRun& run,
                             const Clock& clock = Clock::system());

  // Throws Fault::config if `path` is not a run directory, or one of a newer format.
  static RunDirectory open(const Path& path);

  const Path& path() const noexcept { return path_; }
  Path record_file() const { return path_ / "run.json"; }
  Path config() const { return path_ / "config.yaml"; }
  Path plan() const { return path_ / "plan.json"; }
  Path machine() const { return path_ / "machine.json"; }
  Path events() const { return path_ / "events.jsonl"; }
  Path metrics() const { return path_ / "metrics.jsonl"; }
  Path trace() const { return path_ / "trace.json"; }
  Path system() const { return path_ / "system.jsonl"; }
  Path classes() const { return path_ / "classes.json"; }
  Path summary() const { return path_ / "summary.json"; }
  Path heartbeat() const { return path_ / "heartbeat"; }
  Path log(int rank) const;
  Path error(int rank) const;
  Path checkpoints() const { return path_ / "checkpoints"; }

  RunRecord read_record() const;

  // Records that this process looks after the run from now on; it is running.
  void claim() const;

  // Writes atomically: a reader sees the old record or the new one. Without room for
  // both the new one is written over the old one. `finished` is set with a final state.
  void update_record(const StatusChange& change,
                     const Clock& clock = Clock::system()) const;

 private:
  explicit RunDirectory(Path path) : path_(std::move(path)) {}

  Path path_;
};

// Returns the JSON of run.json.
std::string to_json(const RunRecord& record);

struct SkippedEntry {
  Path path;
  std::string reason;
};

struct RunEntry {
  RunDirectory directory;
  RunRecord record;
};

struct RunList {
  std::vector<RunEntry> runs;  // newest first, by the time they started
  std::vector<SkippedEntry> skipped;
};

// Returns every run below `parent`; other entries are skipped, with the reason. A
// missing `parent` has no runs.
RunList list_runs(const Path& parent);

}  // namespace lockstep::run
