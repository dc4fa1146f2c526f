#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/service/executor.h"
#include "lockstep/service/schedule.h"
#include "lockstep/service/store.h"

namespace lockstep::service {

struct DispatcherOptions {
  config::ServerConfig config;
  files::Path jobs;     // the folder of their folders
  files::Path removed;  // folders of jobs that are not wanted any more
  std::function<hardware::Machine()> machine;
  std::vector<int> cores;
  // Called after each change of a state, whoever made it, in the order of changes and
  // outside of transactions. May be empty.
  std::function<void(const Job&)> on_change = {};
};

// Returns how long a failed job waits before its next try: the wait doubles, up to 32
// times the first.
Milliseconds retry_delay(const config::QueueConfig& queue, int retries);

// Brings the queue forward: adopts the supervisors of an earlier server, follows them,
// stops those whose jobs are not wanted any more, and starts those whose turn it is.
// Keeps nothing that is not in the store or in the folders of the jobs, so that it may
// be killed at any instant.
//
// Threads: run() has one; wake() and the rest may be called by any.
class Dispatcher {
 public:
  Dispatcher(Store& store, Executor& executor, DispatcherOptions options);

  // Looks until asked to stop, several times a second and when woken.
  void run(const std::stop_token& stop);
  void wake();

  void look_once();

  QueueView queue_view();
  Pool pool();
  void set_config(const config::ServerConfig& config);

  JobFolder folder_of(const std::string& job) const { return JobFolder(jobs_ / job); }

 private:
  void follow(const Job& job);
  void follow_living(const Job& job);
  void end_attempt(const Job& job, const AttemptEnd& end);
  void lost(const Job& job, const AttemptView& view);
  void settle_lost(const Job& job, const AttemptView& view);
  void fail_or_retry(const Job& job, const std::string& reason, bool may_retry);
  void settle(const Job& job, JobState to, const std::string& reason);
  void start_next();
  void start(const Job& job, const Turn& turn, const Pool& pool);
  void spawn(const Job& listed, const Pool& pool);
  void tell_changes();
  void empty_removed();
  void complain(const std::string& job, const std::string& text);
  bool has_nothing_to_start();
  config::ServerConfig config();
  hardware::Machine machine();
  std::vector<int> supervisors(const hardware::Machine& machine);

  Store& store_;
  Executor& executor_;
  const files::Path jobs_, removed_;
  const std::function<hardware::Machine()> machine_;
  const std::vector<int> cores_;
  const std::function<void(const Job&)> on_change_;
  std::int64_t told_;  // the number of the last change that was told
  bool is_first_look_ = true;

  // Since when those that were asked to stop are waited for: the time of day may jump.
  std::map<std::string, SteadyTime> stopping_;

  // What was wrong with a job, and when it was said.
  std::map<std::string, std::pair<std::string, SteadyTime>> said_;

  // When the queue was last gone through, and what could have changed since.
  std::int64_t scheduled_change_ = -1;
  Milliseconds next_retry_ = 0;  // 0: none waits
  SteadyTime scheduled_{};

  std::mutex mutex_;  // guards the four below
  std::condition_variable_any woken_;
  bool wake_ = false;
  config::ServerConfig config_;
  bool config_changed_ = false;

  std::mutex machine_mutex_;  // guards the two below
  hardware::Machine known_machine_;
  SteadyTime looked_at_machine_{};
};

}  // namespace lockstep::service
