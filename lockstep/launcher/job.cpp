#include "lockstep/launcher/job.h"

#include <algorithm>

#include <poll.h>
#include <signal.h>

#include "lockstep/base/error.h"
#include "lockstep/base/leftovers.h"
#include "lockstep/base/process.h"
#include "lockstep/base/units.h"
#include "lockstep/launcher/detail/attempt.h"
#include "lockstep/launcher/detail/guard.h"
#include "lockstep/launcher/detail/judge.h"
#include "lockstep/launcher/detail/sweep.h"
#include "lockstep/launcher/port.h"
#include "lockstep/run/exit_status.h"
#include "lockstep/run/host.h"

namespace lockstep::launcher {
namespace {

using run::RunStatus;
using std::chrono::milliseconds;

void check(const Job& job) {
  LOCKSTEP_CHECK(!job.command.empty() && !job.ranks.empty());
  LOCKSTEP_CHECK(
      job.first.rank >= 0 &&
          job.first.rank + static_cast<int>(job.ranks.size()) <= job.first.world_size,
      "rank ", job.first.rank, ", ", job.ranks.size(), " here, of ",
      job.first.world_size);
  const auto& program = job.command[0];
  const bool is_path = program.find('/') != std::string::npos;
  if (is_path && !std::filesystem::exists(program)) {
    throw Error(Fault::hardware, "launcher: '", program,
                "' does not exist; build it, or check its path");
  }
}

// Holds the port of the store, from before its host starts until after it has ended.
std::optional<HeldPort> hold_port(Job& job) {
  auto& first = job.first;
  if (first.nodes > 1 && (first.node != 0 || first.master_port == 0)) {
    return std::nullopt;
  }
  if (first.agent_store) return std::nullopt;
  auto port = first.master_port == 0 ? HeldPort::any()  //
                                     : HeldPort::take(first.master_port);
  first.master_port = port.port();
  return port;
}

Job completed(const Job& wanted) {
  auto job = wanted;
  job.first.by = run::StartedBy::lockstep;
  job.first.local_rank = 0;
  job.first.local_world_size = static_cast<int>(job.ranks.size());
  if (job.first.nodes == 1) {
    if (job.first.master_address.empty()) job.first.master_address = "127.0.0.1";
    if (job.first.token.empty()) job.first.token = make_mark();
  }
  return job;
}

bool captures(const Job& job) {
  return std::any_of(job.ranks.begin(), job.ranks.end(),
                     [](const RankOptions& rank) { return !rank.owns_terminal; });
}

// Returns whether the run directory is gone: no restart is possible.
bool is_homeless(const JobResult& result) {
  return !result.ends.empty() && result.ends[0].homeless;
}

// Runs all attempts of a job.
class Runner {
 public:
  Runner(const run::RunDirectory& run, const Job& job, Signals& signals)
      : run_(run),
        job_(completed(job)),
        signals_(signals),
        clock_(*job.clock),
        notes_(run, job_, clock_) {
    check(job_);
    run::check_host(job_.first);
    port_ = hold_port(job_);
    if (job_.hang_limits && job_.hang_limits->step_floor.count() > 0) {
      const HangJudge::Group group{.local_ranks = static_cast<int>(job_.ranks.size()),
                                   .several_nodes = job_.first.nodes > 1};
      hang_.emplace(*job_.hang_limits, group, clock_);
    }
    guard_.emplace(mark_, job_.lock);  // before the pump's threads
    if (captures(job_)) pump_.emplace(LogPump::Options{.show = job_.show});
  }

  JobResult run() {
    for (int attempt = 0;; ++attempt) {
      auto result = judge(run_, job_, one_life(attempt));
      result.restarts = attempt;
      if (is_homeless(result)) return result;
      if (result.state == RunStatus::failed) note_failure(result, attempt);
      if (!is_worth_another(result, attempt)) return result;
      const auto delay = delay_before(attempt);
      announce(result, attempt, delay);
      if (const auto number = interrupted_within(delay))
        return given_up(result, *number);
    }
  }

 private:
  std::vector<RankEnd> one_life(int number) {
    clean_up();
    Attempt attempt({.run = run_,
                     .job = job_,
                     .mark = mark_,
                     .pump = pump_ ? &*pump_ : nullptr,
                     .notes = notes_,
                     .signals = signals_,
                     .hang = hang_ ? &*hang_ : nullptr,
                     .clock = clock_},
                    number);
    notes_.event(
        "launched",
        {{"attempt", std::int64_t{number}},
         {"ranks", static_cast<std::int64_t>(job_.ranks.size())},
         {"first_rank", std::int64_t{job_.first.rank}},
         {"world_size", std::int64_t{job_.first.world_size}},
         {"master", str(job_.first.master_address, ":", job_.first.master_port)}});
    return attempt.until_end();
  }

  const RankEnd& first_failed(const JobResult& result) const {
    return result.ends[first_failure(run_, job_, result.ends).value_or(0)];
  }

  void note_failure(const JobResult& result, int attempt) {
    const auto& end = first_failed(result);
    notes_.event("failure", {{"attempt", std::int64_t{attempt}},
                             {"rank", std::int64_t{end.rank}},
                             {"pid", std::int64_t{end.pid}},
                             {"seen", end.time},
                             {"end", process::describe(end.end)},
                             {"hang", end.hang},
                             {"message", failure_line(run_, job_, end)}});
  }

  bool is_worth_another(const JobResult& result, int attempt) const {
    if (result.state != RunStatus::failed || attempt >= job_.first.max_restarts) {
      return false;
    }
    const auto& end = first_failed(result);
    return end.asked_by == 0 && end.lost_to.empty() && is_retryable(run_, job_, end);
  }

  milliseconds delay_before(int attempt) const {
    constexpr int kLongest = 30;
    return job_.restart_delay * std::min(kLongest, 1 << std::min(attempt, 5));
  }

  void announce(const JobResult& result, int attempt, milliseconds delay) {
    const auto reason = failure_line(run_, job_, first_failed(result));
    notes_.event("restart",
                 {{"attempt", std::int64_t{attempt + 1}},
                  {"of", std::int64_t{job_.first.max_restarts}},
                  {"after_seconds", static_cast<double>(delay.count()) / 1e3},
                  {"reason", reason}});
    notes_.say(str(reason, "; all ranks restart in ", units::exact_duration(delay),
                   " (", attempt + 1, " of ", job_.first.max_restarts, ")"));
  }

  // Returns the signal that asked to stop meanwhile.
  std::optional<int> interrupted_within(milliseconds delay) {
    const auto until = clock_.now() + delay;
    while (true) {
      while (const auto number = signals_.take()) {
        if (*number == SIGTSTP) {
          ::raise(SIGSTOP);
        } else if (*number != SIGUSR2) {
          return number;
        }
      }
      const auto left = std::chrono::ceil<milliseconds>(until - clock_.now());
      if (left.count() <= 0) return std::nullopt;
      pollfd ready{.fd = signals_.fd(), .events = POLLIN, .revents = 0};
      ::poll(&ready, 1, static_cast<int>(std::min<long>(left.count(), 1 << 30)));
    }
  }

  JobResult given_up(JobResult result, int number) const {
    result.state = RunStatus::stopped;
    result.exit = run::exit_of_stop(run_, job_.resumes, number);
    result.message = str("stopped by ", process::signal_name(number),
                         " before a restart; ", result.message);
    return result;
  }

  // Removes what this attempt must not take for its own: beats and errors of the one
  // before, in this process or in an earlier command of the same run.
  void clean_up() {
    std::error_code ignored;
    std::filesystem::remove(run_.heartbeat(), ignored);
    for (std::size_t i = 0; i < job_.ranks.size(); ++i) {
      std::filesystem::remove(run_.error(job_.first.rank + static_cast<int>(i)),
                              ignored);
    }
  }

  const run::RunDirectory& run_;
  Job job_;
  Signals& signals_;
  const Clock& clock_;
  Notes notes_;
  const std::string mark_ = make_mark();
  std::optional<HeldPort> port_;
  std::optional<HangJudge> hang_;  // of all attempts: what it has learnt of steps holds
  std::optional<Guard> guard_;
  std::optional<LogPump> pump_;
};

}  // namespace

JobResult run_job(const run::RunDirectory& run, const Job& job, Signals& signals) {
  files::sweep_leftovers(run.path());
  // This comes before a rank exists: if it fails, there is nothing to clean up.
  run.update_record({RunStatus::running, std::nullopt, ""});
  JobResult result;
  try {
    result = Runner(run, job, signals).run();
  } catch (const std::exception& error) {
    // This includes a lack of memory or threads: in any case nothing runs any more.
    const auto* known = dynamic_cast<const Error*>(&error);
    try {
      run.update_record({RunStatus::failed,
                         known == nullptr ? kExitFailed : shell_status(known->fault()),
                         error.what()});
    } catch (const std::exception&) {  // the first one says more
    }
    throw;
  }
  // The record is its new owner's now.
  if (!result.ends.empty() && !result.ends[0].lost_to.empty()) return result;
  if (is_homeless(result)) return result;
  // These are files that killed ranks were about to write.
  files::sweep_leftovers(run.path());
  try {
    run.update_record({result.state, result.exit, result.message});
  } catch (const Error& error) {
    result.message += str(result.message.empty() ? "" : "\n", error.what());
  }
  return result;
}

}  // namespace lockstep::launcher
