#include "lockstep/service/dispatcher.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/base/str.h"
#include "lockstep/base/text.h"
#include "lockstep/service/access.h"
#include "lockstep/service/detail/one_line.h"
#include "lockstep/service/job_files.h"

namespace lockstep::service {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLookEvery{200};
constexpr std::chrono::seconds kMachineEvery{5};
// A supervisor has begun long before; one that has not is started again.
constexpr Milliseconds kSpawnPatience = 15'000;
// A supervisor that has not ended so long after its grace period hangs.
constexpr Milliseconds kStopPatience = 60'000;
constexpr std::size_t kMostSaid = 1000;

// Databases may have one from versions that took it and did not do it: such a job does
// not run as the server's user, nor as one that nobody thought of then.
void refuse_unix_user(Store& store, const config::QueueConfig& queue,
                      const std::string& name) {
  const auto user = find_user(store, name);
  if (!user || user->unix_user.empty() || queue.unix_users.contains(name)) return;
  throw Error(Fault::config, "user: jobs of '", name, "' were to run as Unix user '",
              user->unix_user, "', which queue.unix_users does not say; add it");
}

bool trains(const JobFolder& folder) {
  try {
    const ReadableRun run(folder);
    return run::RunDirectory::open(run.path()).read_record().state ==
           run::RunStatus::running;
  } catch (const Error&) {
    return false;  // not made yet
  }
}

}  // namespace

Dispatcher::Dispatcher(Store& store, Executor& executor, DispatcherOptions options)
    : store_(store),
      executor_(executor),
      jobs_(std::move(options.jobs)),
      removed_(std::move(options.removed)),
      machine_(std::move(options.machine)),
      cores_(std::move(options.cores)),
      on_change_(std::move(options.on_change)),
      told_(store.last_change()),
      config_(std::move(options.config)) {}

void Dispatcher::run(const std::stop_token& stop) {
  while (!stop.stop_requested()) {
    try {
      look_once();
    } catch (const Error& error) {
      // A full disk, a database that is busy: the next look may do.
      complain("", error.what());
    }
    std::unique_lock lock(mutex_);
    woken_.wait_for(lock, stop, kLookEvery, [this] { return wake_; });
    wake_ = false;
  }
}

void Dispatcher::wake() {
  {
    const std::lock_guard lock(mutex_);
    wake_ = true;
  }
  woken_.notify_one();
}

config::ServerConfig Dispatcher::config() {
  const std::lock_guard lock(mutex_);
  return config_;
}

void Dispatcher::set_config(const config::ServerConfig& config) {
  const std::lock_guard lock(mutex_);
  config_ = config;
  config_changed_ = true;
}

// What is wrong at every look is said once a minute: a disk may be full for days.
void Dispatcher::complain(const std::string& job, const std::string& text) {
  const auto now = Clock::system().now();
  if (said_.size() > kMostSaid) said_.clear();
  const auto& [said, when] = said_[job];
  if (said == text && now - when < std::chrono::minutes(1)) return;
  said_[job] = {text, now};
  log::warning("service", text);
}

void Dispatcher::look_once() {
  for (const auto& job : store_.jobs_in(kActiveStates)) {
    try {
      follow(job);
    } catch (const Error& error) {
      // One job whose folder can not be read does not hold up the others.
      complain(job.id, str(job.id, ": ", error.what()));
    }
  }
  is_first_look_ = false;
  start_next();
  tell_changes();
  empty_removed();
}

// One at a look: jobs that wait for their turn do not wait for all of them. A server
// that is killed in the middle leaves the rest to the next one.
void Dispatcher::empty_removed() {
  std::error_code ignored;
  const std::filesystem::directory_iterator first(removed_, ignored);
  if (ignored || first == std::filesystem::directory_iterator()) return;
  std::filesystem::remove_all(first->path(), ignored);
}

// From the store, so that what clients and commands have changed is told as well.
void Dispatcher::tell_changes() {
  constexpr int kAtOnce = 1000;
  for (const auto& change : store_.changes_after(told_, kAtOnce)) {
    told_ = change.number;
    auto job = store_.find_job(change.job);
    if (!job) continue;  // removed since
    job->state = change.state;
    job->reason = change.reason;
    job->changed = change.time;
    log::info("service",
              one_line(str(job->id, " of ", job->user, " is ", name_of(job->state),
                           job->reason.empty() ? "" : ": ", job->reason)));
    if (on_change_) on_change_(*job);
  }
}

void Dispatcher::follow(const Job& job) {
  const auto view = executor_.look(folder_of(job.id), job.attempt);
  switch (view.status) {
    case AttemptStatus::absent:
      if (job.state == JobState::stopping || job.state == JobState::pausing) {
        executor_.stop(folder_of(job.id), job.attempt, /*now=*/false);
      } else if (is_first_look_ ||
                 std::abs(store_.now() - job.spawned) > kSpawnPatience) {
        // The server before this one may have been killed before it could.
        spawn(job, pool());
      }
      return;
    case AttemptStatus::starting:
      // One that waits in another engine's queue has no process that could be asked.
      if (job.state == JobState::stopping || job.state == JobState::pausing) {
        executor_.stop(folder_of(job.id), job.attempt, /*now=*/false);
      }
      return;
    case AttemptStatus::alive:
      return follow_living(job);
    case AttemptStatus::ended:
      return end_attempt(job, *view.end);
    case AttemptStatus::killed:
    case AttemptStatus::rebooted:
      return lost(job, view);
  }
}

void Dispatcher::follow_living(const Job& job) {
  const auto folder = folder_of(job.id);
  if (job.state == JobState::planning && trains(folder)) {
    store_.move(job.id, {JobState::planning, JobState::running});
  }
  if (job.state != JobState::stopping && job.state != JobState::pausing) {
    stopping_.erase(job.id);
    return;
  }
  // Asked again at every look: the supervisor takes it once, and the server that asked
  // first may have been killed before it could.
  executor_.stop(folder, job.attempt, /*now=*/false);
  const auto now = Clock::system().now();
  const auto since = stopping_.try_emplace(job.id, now).first->second;
  if (now - since > milliseconds(config().queue.grace.count() + kStopPatience)) {
    executor_.stop(folder, job.attempt, /*now=*/true);
  }
}

void Dispatcher::settle(const Job& job, JobState to, const std::string& reason) {
  stopping_.erase(job.id);
  store_.transaction([&] {
    if (store_.move(job.id, {job.state, to, reason})) store_.drop_leases(job.id);
  });
}

void Dispatcher::end_attempt(const Job& job, const AttemptEnd& end) {
  const auto bytes = bytes_below(folder_of(job.id).path());
  const int gpus = job.kind == JobKind::plan ? 0 : job.resources.gpus;
  store_.transaction([&] {
    if (store_.find_job(job.id)->state != job.state) return;
    store_.add_use(job.id, end.seconds, end.seconds * gpus);
    store_.set_bytes(job.id, bytes);
    if (end.state == run::RunStatus::done) {
      settle(job, JobState::done, end.message);
    } else if (job.state == JobState::stopping) {
      settle(job, JobState::cancelled, end.message);
    } else if (end.out_of_time) {
      settle(job, JobState::failed,
             str("time limit: ", job.time_limit / 1000, " s are over"));
    } else if (job.state == JobState::pausing && end.state == run::RunStatus::stopped) {
      settle(job, JobState::paused, "paused; resume goes on from its checkpoint");
    } else if (end.state == run::RunStatus::stopped) {
      // A stop that nobody asked for here: of the machine, say.
      settle(job, JobState::interrupted, end.message);
    } else {
      fail_or_retry(job, end.message, end.may_retry);
    }
  });
}

// What it had counts, and what it has written: its supervisor did not come to say so.
void Dispatcher::lost(const Job& job, const AttemptView& view) {
  const auto folder = folder_of(job.id);
  const auto bytes = bytes_below(folder.path());
  const double most = static_cast<double>(store_.now() - job.spawned) / 1000;
  const double seconds =
      std::clamp(seconds_seen(folder, job.attempt), 0.0, std::max(0.0, most));
  const int gpus = job.kind == JobKind::plan ? 0 : job.resources.gpus;
  store_.transaction([&] {
    if (store_.find_job(job.id)->state != job.state) return;
    store_.add_use(job.id, seconds, seconds * gpus);
    store_.set_bytes(job.id, bytes);
    settle_lost(job, view);
  });
}

void Dispatcher::settle_lost(const Job& job, const AttemptView& view) {
  const auto reason = view.reason.empty() ? "its supervisor was killed" : view.reason;
  if (job.state == JobState::stopping) {
    return settle(job, JobState::cancelled, reason);
  }
  if (job.state == JobState::pausing) {
    return settle(job, JobState::paused, reason);
  }
  if (view.status != AttemptStatus::rebooted) return fail_or_retry(job, reason, true);
  const bool resumes = config().queue.resume_after_reboot;
  settle(job, resumes ? JobState::queued : JobState::interrupted,
         "the machine was rebooted");
}

void Dispatcher::fail_or_retry(const Job& job, const std::string& reason,
                               bool may_retry) {
  if (!may_retry || job.retries >= job.max_retries || job.state == JobState::stopping) {
    return settle(job, JobState::failed, reason);
  }
  // Its user does not want it to run now: who resumes it, tries it again.
  if (job.state == JobState::pausing) {
    return settle(job, JobState::paused, "paused after: " + reason);
  }
  const auto delay = retry_delay(config().queue, job.retries);
  store_.transaction([&] {
    store_.set_retry(job.id, job.retries + 1, store_.now() + delay);
    settle(job, JobState::queued,
           str("retry ", job.retries + 1, " of ", job.max_retries, " after: ", reason));
  });
}

// Going through a long queue takes its time: only when something has changed, a retry
// is due, or the machine may have.
bool Dispatcher::has_nothing_to_start() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(config_changed_, false)) return false;
  }
  const bool is_retry_due = next_retry_ != 0 && store_.now() >= next_retry_;
  return store_.last_change() == scheduled_change_ && !is_retry_due &&
         Clock::system().now() - scheduled_ < kMachineEvery;
}

void Dispatcher::start_next() {
  if (has_nothing_to_start()) return;
  scheduled_change_ = store_.last_change();
  scheduled_ = Clock::system().now();
  next_retry_ = 0;
  const auto view = queue_view();
  if (view.queued.empty()) return;
  for (const auto& turn : schedule(view, config().quota)) {
    const auto& job = view.queued[turn.index];
    if (job.not_before > view.now) {
      next_retry_ =
          next_retry_ == 0 ? job.not_before : std::min(next_retry_, job.not_before);
    }
    if (turn.hopeless) {
      settle(job, JobState::failed, turn.reason);
    } else if (!turn.leases.empty()) {
      start(job, turn, view.pool);
    }
  }
}

void Dispatcher::start(const Job& job, const Turn& turn, const Pool& pool) {
  bool moved = false;
  auto started = job;
  // Written down before the process is there: a server that is killed between the two
  // finds an attempt without a supervisor, and starts it.
  store_.transaction([&] {
    // Paused and resumed on something else since its turn was found out, say.
    const auto now = store_.find_job(job.id);
    if (!now || now->resources != job.resources) return;
    moved = store_.move(job.id, {JobState::queued, JobState::planning});
    if (!moved) return;
    started.attempt = now->attempt + 1;
    store_.set_attempt(job.id, started.attempt, store_.now());
    store_.add_leases(turn.leases);
  });
  if (!moved) return;
  started.state = JobState::planning;
  spawn(started, pool);
}

void Dispatcher::spawn(const Job& listed, const Pool& pool) {
  const auto whole = store_.find_job(listed.id);
  // Cancelled or paused since: the next look ends what has not begun.
  if (!whole || whole->attempt != listed.attempt || whole->state != listed.state) {
    return;
  }
  const auto& job = *whole;
  const auto folder = folder_of(job.id);
  std::vector<Lease> mine;
  for (const auto& lease : store_.leases()) {
    if (lease.job == job.id) mine.push_back(lease);
  }
  try {
    refuse_unix_user(store_, config().queue, job.user);
    const auto user = unix_user_of(config().queue, job.user);
    make_job_folder(folder, user);
    Order order{.job = job.id, .recipe = job.recipe, .overrides = job.overrides};
    const double share = job.resources.memory_fraction;
    if (share > 0) {
      order.overrides.emplace_back("memory.fraction", text::from_double(share));
    }
    order.only_plans = job.kind == JobKind::plan;
    order.grace = milliseconds(config().queue.grace.count());
    if (job.time_limit > 0) {
      const auto used = static_cast<Milliseconds>(job.seconds * 1000);
      order.time_limit = milliseconds(std::max<Milliseconds>(1, job.time_limit - used));
    }
    store_.set_attempt(job.id, job.attempt, store_.now());
    executor_.start({.folder = folder,
                     .job = job,
                     .attempt = job.attempt,
                     .leases = mine,
                     .order = order,
                     .user = user},
                    pool);
  } catch (const Error& error) {
    log::error("service", str(job.id, ": ", error.what()));
    fail_or_retry(job, error.what(), error.fault() == Fault::io);
  } catch (const std::filesystem::filesystem_error& error) {
    log::error("service", str(job.id, ": ", error.what()));
    fail_or_retry(job, "its folder cannot be made", true);
  }
}

}  // namespace lockstep::service
