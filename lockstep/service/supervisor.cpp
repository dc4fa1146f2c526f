#include "lockstep/service/supervisor.h"

#include <algorithm>
#include <thread>

#include <signal.h>
#include <time.h>

#include "lockstep/base/error.h"
#include "lockstep/base/str.h"
#include "lockstep/jobs/compare.h"
#include "lockstep/jobs/host_load.h"
#include "lockstep/jobs/job_options.h"
#include "lockstep/jobs/mlflow_sync.h"
#include "lockstep/jobs/open_run.h"
#include "lockstep/jobs/over.h"
#include "lockstep/jobs/prepare.h"
#include "lockstep/jobs/worker.h"
#include "lockstep/launcher/job.h"
#include "lockstep/launcher/signals.h"
#include "lockstep/planner/plan.h"

namespace lockstep::service {
namespace {

using std::chrono::milliseconds;

// Sends SIGTERM to this process when the time is over, as whoever stops a job does.
class Deadline {
 public:
  explicit Deadline(milliseconds limit) {
    if (limit.count() <= 0) return;
    sigevent event{};
    event.sigev_notify = SIGEV_SIGNAL;
    event.sigev_signo = SIGTERM;
    if (::timer_create(CLOCK_MONOTONIC, &event, &timer_) != 0) return;
    made_ = true;
    itimerspec when{};
    when.it_value.tv_sec = limit.count() / 1000;
    when.it_value.tv_nsec = (limit.count() % 1000) * 1'000'000;
    ::timer_settime(timer_, 0, &when, nullptr);
  }
  ~Deadline() {
    if (made_) ::timer_delete(timer_);
  }
  Deadline(const Deadline&) = delete;
  Deadline& operator=(const Deadline&) = delete;

 private:
  timer_t timer_{};
  bool made_ = false;
};

std::vector<config::Override> overrides_of(const Order& order,
                                           const JobFolder& folder) {
  std::vector<config::Override> overrides;
  for (const auto& [key, value] : order.overrides) overrides.push_back({key, value});
  overrides.push_back({"run.dir", folder.path().string()});
  overrides.push_back({"run.name", "run"});
  return overrides;
}

bool asked_to_stop(launcher::Signals& signals) {
  bool asked = false;
  while (const auto signal = signals.take()) {
    asked = asked || *signal == SIGTERM || *signal == SIGINT;
  }
  return asked;
}

AttemptEnd stopped_early() {
  return {.state = run::RunStatus::stopped,
          .exit = kExitStopped,
          .message = "stopped before training began"};
}

// The guard of a supervisor that was killed holds the run until none of its ranks is
// left, which takes a moment.
std::optional<run::RunLock> lock_run(const config::Config& config,
                                     const jobs::Caller& caller) {
  constexpr int kLooks = 150;
  constexpr milliseconds kBetween{200};
  for (int look = 1;; ++look) {
    try {
      return jobs::lock_existing_run(config, /*take_over=*/false, caller);
    } catch (const Error& error) {
      if (error.fault() != Fault::config || look == kLooks) throw;
    }
    std::this_thread::sleep_for(kBetween);
  }
}

AttemptEnd end_of(const launcher::JobResult& result) {
  const bool hopeless =
      result.fault == Fault::config || result.fault == Fault::diverged;
  return {.state = result.state,
          .exit = result.exit,
          .message = result.message,
          .may_retry = result.state == run::RunStatus::failed && !hopeless};
}

// A job whose lock this process has.
struct LockedJob {
  const JobFolder& folder;
  const Order& order;
};

AttemptEnd train(const LockedJob& job, launcher::Signals& signals,
                 const jobs::Caller& caller) {
  const auto& [folder, order] = job;
  const auto wanted =
      config::load_text("recipe", order.recipe, overrides_of(order, folder));
  const auto prepared = jobs::prepare(wanted, /*chooses=*/true, caller);
  const auto& plan = prepared.plan;
  if (order.only_plans) {
    files::write_atomically(folder.plan(), planner::to_json(plan));
    return {.state = run::RunStatus::done, .exit = kExitOk, .message = "planned"};
  }
  if (jobs::find_over(plan.config)) {
    return {.state = run::RunStatus::done, .exit = kExitOk, .message = "was done"};
  }
  auto lock = lock_run(plan.config.config, caller);
  if (asked_to_stop(signals)) return stopped_early();
  const auto opened = jobs::open_run(plan, {.lock = std::move(lock)}, caller);
  jobs::keep_machine(opened.directory, prepared.machine);
  jobs::StartOptions start;
  start.worker = jobs::find_worker(caller);
  start.grace = order.grace;
  start.say = caller.say;
  start.environment.emplace_back("NO_COLOR", "1");
  const double started = unix_seconds(Clock::system().wall());
  const jobs::OtherLoad others;
  jobs::MlflowSync mlflow(opened.directory.path(), plan.config.config.monitor, caller);
  const auto result = launcher::run_job(
      opened.directory, jobs::training_job(plan, opened, start), signals);
  const auto unsent = mlflow.finish(result.state == run::RunStatus::failed);
  if (!unsent.empty()) caller.warn("mlflow: " + unsent);
  if (result.state == run::RunStatus::done) {
    static_cast<void>(jobs::compare_with_plan(
        {plan, prepared.knowledge, prepared.machine, started, others.share()},
        opened.directory, caller));
  }
  return end_of(result);
}

}  // namespace

int never_begin(const JobFolder& folder, int attempt) {
  end_unbegun(folder, attempt);
  return kExitOk;
}

int supervise(const JobFolder& folder, int attempt, const jobs::Caller& caller) {
  // Before anything else: a stop that comes while it plans is not lost.
  launcher::Signals signals;
  const auto lock = JobLock::take(folder);
  if (!lock || !begin_attempt(folder, attempt)) {
    caller.say(str("attempt ", attempt, " has a supervisor, or has had one"));
    return kExitOk;
  }
  const auto begin = Clock::system().now();
  AttemptEnd end;
  milliseconds limit{0};
  try {
    const auto order = read_order(folder);
    limit = order.time_limit;
    const Deadline deadline(limit);
    end = train({folder, order}, signals, caller);
  } catch (const Error& error) {
    caller.warn(error.what());
    end.message = error.what();
    end.exit = shell_status(error.fault());
    end.may_retry = error.fault() == Fault::io || error.fault() == Fault::comm;
  } catch (const std::exception& error) {
    caller.warn(error.what());
    end.message = str("internal error of the supervisor: ", error.what());
  }
  end.seconds = seconds_between(begin, Clock::system().now());
  end.out_of_time = limit.count() > 0 && end.state == run::RunStatus::stopped &&
                    end.seconds * 1000 >= static_cast<double>(limit.count());
  write_end(folder, attempt, end);
  return end.exit;
}

}  // namespace lockstep::service
