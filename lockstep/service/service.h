#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/config/server.h"
#include "lockstep/jobs/caller.h"
#include "lockstep/service/access.h"
#include "lockstep/service/audit.h"
#include "lockstep/service/dispatcher.h"
#include "lockstep/service/forecast.h"
#include "lockstep/service/refusal.h"
#include "lockstep/service/remote_recipe.h"
#include "lockstep/service/run_cache.h"
#include "lockstep/service/store.h"
#include "lockstep/service/uploads.h"

namespace lockstep::service {

// A job as somebody asks for it.
struct Submission {
  std::string name;
  JobKind kind = JobKind::training;
  RemoteRecipe recipe;
  int priority = 0;
  int max_retries = 0;
  Milliseconds time_limit = 0;
  Resources resources;
  std::vector<std::string> needs = {};
  std::string request;                  // as it came
  std::vector<std::string> texts = {};  // to train on, in place of an upload
};

// A queued job and when it will start, as far as that can be told.
struct QueuePlace {
  Turn turn;
  int position = 0;                         // from 1
  std::optional<double> starts_in_seconds;  // nothing: not known
};

struct ServiceOptions {
  config::ServerConfig config;
  files::Path state;  // the folder of everything
  jobs::Caller caller;
  std::function<void(const Job&)> on_change = {};
  // Tests have machines of their own.
  std::function<hardware::Machine()> machine = {};
};

// What the service does, whatever carries the questions: HTTP, or a command on the same
// machine. Every operation checks who asks: a thing of another user is unknown.
//
// Threads: any.
class Service {
 public:
  explicit Service(ServiceOptions options);
  ~Service();
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // Works on the queue in a thread of its own until stop(). Jobs go on after it. A
  // Service that was not started can be asked all the same; another process has to
  // work on the queue.
  void start();
  void stop();

  Job submit(const Identity& who, const Submission& submission);
  Job job(const Identity& who, const std::string& id);
  std::vector<Job> jobs(const Identity& who, JobFilter filter);
  // With its history; shared with others who ask for the same job.
  std::shared_ptr<const JobAndHistory> job_now(const Identity& who,
                                               const std::string& id);
  std::vector<StateChange> history(const Identity& who, const std::string& id);

  // Cancel: a checkpoint, the grace period, the end. Each returns the job as it is then
  // and refuses what its state does not allow.
  Job cancel(const Identity& who, const std::string& id);
  Job pause(const Identity& who, const std::string& id);
  // Queues a job again that is paused, interrupted, failed or cancelled; it goes on
  // from its newest checkpoint, on other resources if these are given.
  Job resume(const Identity& who, const std::string& id,
             const std::optional<Resources>& resources);
  void remove(const Identity& who, const std::string& id);

  // Returns the plan (JSON) of a job that plans; nothing if there is none yet.
  std::optional<std::string> plan(const Identity& who, const std::string& id);

  // Throws Refused::too_large if a user would have more than its quota of disk.
  void check_disk(const std::string& user, std::int64_t more_bytes);

  // In the order in which they will start. Going through a long queue takes its time:
  // it is done again when something has changed, or after a second.
  using Queue = std::shared_ptr<const std::vector<QueuePlace>>;
  Queue queue();

  // The folder of a job that `who` may see.
  JobFolder folder(const Identity& who, const std::string& id);
  // The same where that was asked already.
  JobFolder folder_of(const Job& job) const { return dispatcher_.folder_of(job.id); }

  // Returns who has this secret; nothing for one that is unknown, revoked or expired.
  std::optional<Identity> identify(std::string_view secret) {
    return identities_.identify(secret);
  }

  // Names that jobs may use for files: those of the server, and the sender's uploads.
  std::vector<std::string> input_names() const;
  std::vector<std::string> model_names() const;

  Pool pool() { return dispatcher_.pool(); }
  Store& store() noexcept { return store_; }
  Uploads& uploads() noexcept { return uploads_; }
  RunCache& runs() noexcept { return runs_; }
  const jobs::Caller& caller() const noexcept { return caller_; }
  config::ServerConfig config() const;
  config::LimitsConfig limits() const;

  // New limits and quotas hold from now on.
  void reload(const config::ServerConfig& config);

  // Removes what has been kept long enough; returns how many jobs and files.
  int clean_up();

 private:
  std::optional<std::string> find_input(const Identity& who, const std::string& knob,
                                        const std::string& name);
  CheckedRecipe check_recipe(const Identity& who, const Submission& submission);
  std::vector<QueuePlace> queue_places();
  std::vector<Load> running_loads();
  std::function<std::optional<double>(const Job&)> expected_seconds(
      const std::vector<Job>& waiting);
  void check_quota(const std::string& user);
  void check_priority(const Identity& who, int priority);
  Job changeable(const Identity& who, const std::string& id);

  mutable std::mutex mutex_;  // guards config_
  config::ServerConfig config_;
  const files::Path state_;
  const jobs::Caller caller_;
  Store store_;
  Identities identities_{store_};
  Uploads uploads_;
  RunCache runs_;
  std::unique_ptr<Executor> executor_;
  Dispatcher dispatcher_;
  std::mutex queue_mutex_;  // guards the three below
  StoreVersion queue_version_;
  SteadyTime queue_read_{};
  Queue queue_;
  std::jthread worker_;
};

// Returns the state folder that the config names, or the usual one of the user.
files::Path state_folder(const config::StoreConfig& store, const jobs::Caller& caller);

// Makes a folder that only its owner can enter; one that a server has opened for
// queue.unix_users stays as it is. Returns it.
files::Path made_private(const files::Path& folder);

}  // namespace lockstep::service
