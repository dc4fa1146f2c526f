#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/run/run_directory.h"
#include "lockstep/run/run_lock.h"

// The folder of a job, and how a server and the supervisors of a job agree by it on who
// works on the job. Any of them may be killed at any instant.
//
//   lock                      held by a supervisor for as long as it lives
//   job.json                  what a supervisor has to do
//   attempts/<n>.started      made by the supervisor of attempt n, once, under the lock
//   attempts/<n>.ended        how it ended, written before the lock is given back
//   attempts/<n>.log          what it and rank 0 have printed
//   run/                      the run directory
//   plan.json                 the plan, of a job that only plans
//
// An attempt is started once, however often its start is asked for: the second
// supervisor finds the lock taken, or the file `started`.
namespace lockstep::service {

class JobFolder {
 public:
  explicit JobFolder(files::Path path) : path_(std::move(path)) {}

  const files::Path& path() const noexcept { return path_; }
  files::Path lock() const { return path_ / "lock"; }
  files::Path order() const { return path_ / "job.json"; }
  files::Path run() const { return path_ / "run"; }
  files::Path plan() const { return path_ / "plan.json"; }
  files::Path started(int attempt) const;
  files::Path ended(int attempt) const;
  files::Path log(int attempt) const;

 private:
  files::Path path_;
};

// What a supervisor is to do; job.json.
struct Order {
  std::string job;
  std::string recipe;
  std::vector<std::pair<std::string, std::string>> overrides = {};
  std::chrono::milliseconds grace{30'000};
  std::chrono::milliseconds time_limit{0};  // what is left of it; 0: none
  bool only_plans = false;                  // says how it would train, and ends
};

std::string to_json(const Order& order);
void write_order(const JobFolder& folder, const Order& order);
Order read_order(const JobFolder& folder);

// Returns the bytes of all files in a folder; what goes away meanwhile does not count.
std::int64_t bytes_below(const files::Path& folder);

// How an attempt has ended.
struct AttemptEnd {
  run::RunStatus state = run::RunStatus::failed;  // done, failed or stopped
  int exit = 1;
  std::string message;
  bool may_retry = false;    // the same could end better the next time
  bool out_of_time = false;  // it has reached the job's time limit
  double seconds = 0;
};

void write_end(const JobFolder& folder, int attempt, const AttemptEnd& end);

// The lock of a job's folder: seen by others as held until this process has ended.
class JobLock {
 public:
  // Returns nothing if another process has it.
  static std::optional<JobLock> take(const JobFolder& folder);

 private:
  explicit JobLock(files::Descriptor file) : file_(std::move(file)) {}

  files::Descriptor file_;
};

// Returns false if this attempt was begun before. Call it with the lock.
bool begin_attempt(const JobFolder& folder, int attempt);

// Ends an attempt that no supervisor has begun, so that none will. Returns false if one
// has.
bool end_unbegun(const JobFolder& folder, int attempt);

enum class AttemptStatus {
  absent,    // no supervisor has begun it
  starting,  // one has the lock and has not begun
  alive,
  ended,
  killed,    // it was begun, its supervisor is gone, and there is no end
  rebooted,  // the same, and the machine was started since
};

struct AttemptView {
  AttemptStatus status = AttemptStatus::absent;
  std::optional<run::LockHolder> supervisor;  // once it was begun
  std::optional<AttemptEnd> end;              // of one that has ended
  std::string reason = {};  // why it was killed, where somebody knows; else ""
};

// Looks, and changes nothing.
AttemptView look_at_attempt(const JobFolder& folder, int attempt);

// Returns for how many seconds an attempt has left traces: of one that was killed, how
// long it has run at least.
double seconds_seen(const JobFolder& folder, int attempt);

// Sends a signal to the supervisor, if it is still that very process. Returns whether
// it was.
bool signal_supervisor(const run::LockHolder& supervisor, int signal);

// Returns whether it is a process of the user that the folder belongs to: what says
// which process it is, that user may have written.
bool is_of_owner(const JobFolder& folder, const run::LockHolder& supervisor);

}  // namespace lockstep::service
