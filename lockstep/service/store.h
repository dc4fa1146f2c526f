#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/service/job.h"
#include "lockstep/service/recent.h"
#include "lockstep/service/sqlite.h"

namespace lockstep::service {

struct JobFilter {
  std::string user = {};  // "": of all
  std::optional<JobState> state = {};
  std::optional<JobKind> kind = {};
  std::int64_t before = 0;  // a job's number; 0: from the newest on
  int limit = 100;
};

// What is known about a user's use of the machine.
struct UserUse {
  std::string user;
  int open_jobs = 0;    // that are not over
  int active_jobs = 0;  // that run
  // Of its jobs in the last 30 days, those that run included.
  double seconds = 0;
  double gpu_seconds = 0;
};

// A change of the state of a job.
struct StateMove {
  JobState from = JobState::queued;
  JobState to = JobState::queued;
  std::string reason = {};
};

// A change of the state of some job.
struct NumberedChange : StateChange {
  std::int64_t number = 0;
  std::string job;
};

// A job and how it came to be what it is.
struct JobAndHistory {
  Job job;
  std::vector<StateChange> history;
};

// Tells whether anything in a database has changed between two looks.
struct StoreVersion {
  std::int64_t others = -1;  // by other connections
  std::int64_t own = -1;     // by this one

  bool operator==(const StoreVersion&) const = default;
};

// Who asked for what: one SQLite file, whose layout has a version. The run directory of
// a job says what happened in it.
//
// Threads: any.
class Store {
 public:
  // Opens the database, and brings one of an earlier version to this one. Throws
  // Fault::config for one of a later version.
  explicit Store(const std::filesystem::path& file,
                 const Clock& clock = Clock::system());

  static constexpr int kVersion = 3;

  // Runs `body` as one transaction: all of it, or nothing if it throws.
  void transaction(const std::function<void()>& body);

  Milliseconds now() const;

  // Returns the new job's id, which nobody can guess.
  std::string add_job(const NewJob& job);
  std::optional<Job> find_job(std::string_view id);

  // What was read at one version holds as long as it is the same, whoever else has the
  // file open. Many times as cheap as a job.
  StoreVersion version();

  // Returns the same as find_job() and history(), from memory where that is still true;
  // nullptr if there is none.
  std::shared_ptr<const JobAndHistory> job_now(const std::string& id);

  // Without the texts of jobs.
  std::vector<Job> jobs(const JobFilter& filter);
  std::vector<Job> jobs_in(std::span<const JobState> states);  // oldest first

  // Goes to another state and remembers when and why. Returns false, and changes
  // nothing, if the job is not in `from` any more or may not go there.
  bool move(std::string_view id, const StateMove& change);
  std::vector<StateChange> history(std::string_view id);

  // All changes of all jobs have numbers that grow: those behind one, oldest first.
  std::vector<NumberedChange> changes_after(std::int64_t number, int limit);
  std::int64_t last_change();  // 0 before the first

  void set_resources(std::string_view id, const Resources& resources);
  void set_overrides(std::string_view id,
                     const std::vector<std::pair<std::string, std::string>>& overrides);
  void set_attempt(std::string_view id, int attempt, Milliseconds spawned);
  void set_retry(std::string_view id, int retries, Milliseconds not_before);
  void add_use(std::string_view id, double seconds, double gpu_seconds);
  void set_bytes(std::string_view id, std::int64_t bytes);
  // What the job has used stays in use() for its time.
  void remove_job(std::string_view id);

  void add_leases(std::span<const Lease> leases);
  void drop_leases(std::string_view job);
  std::vector<Lease> leases();

  std::vector<UserUse> use();

  // The bytes of a user's jobs: their texts here, and folders as far as attempts have
  // ended.
  std::int64_t bytes_of(std::string_view user);

  // The settings that a user keeps (JSON); "" if there are none.
  std::string settings(std::string_view user);
  void set_settings(std::string_view user, std::string_view json);

  // For the other tables, inside of transaction() only.
  Database& database() noexcept { return database_; }
  std::recursive_mutex& mutex() noexcept { return mutex_; }

 private:
  std::recursive_mutex mutex_;  // guards the connection
  Database database_;
  const Clock& clock_;
  int depth_ = 0;

  struct KeptJob {
    StoreVersion version;
    std::shared_ptr<const JobAndHistory> job;
  };
  Recent<std::string, KeptJob> kept_;
};

}  // namespace lockstep::service
