// Decides what the ends of ranks mean for the run, the user and the shell.
#include "lockstep/launcher/detail/judge.h"

#include <algorithm>
#include <tuple>

#include <signal.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/run/error_file.h"
#include "lockstep/run/exit_status.h"

namespace lockstep::launcher {
namespace {

using run::RunStatus;

// Returns whether a rank of ours answers the signal with a clean stop and the exit
// status 128 + signal.
bool is_stop_signal(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGUSR1;
}

bool is_clean_stop(const process::End& end) {
  if (end.signal != 0) return false;
  return end.exit_status == kExitStopped || is_stop_signal(end.exit_status - 128);
}

// Returns whether a worker has trained to the end, and then found stdout full.
bool is_unprinted(const Job& job, const process::End& end) {
  return job.is_ours() && end.signal == 0 && end.exit_status == kExitUnprinted;
}

// Returns whether it died of the signal that we sent, or exited with its status.
bool is_answer_to(int number, const process::End& end) {
  return number != 0 && (end.signal == number || end.exit_status == 128 + number);
}

bool is_fault(int exit_status_of_worker) {
  const auto fault = fault_of(exit_status_of_worker);
  return exit_status(fault) == exit_status_of_worker;
}

// Returns the fault of a rank, if it is known: its error file's, or the exit status of
// a worker of ours. Any other program may mean anything by a status.
std::optional<Fault> known_fault(const run::RunDirectory& run, const Job& job,
                                 const RankEnd& end) {
  if (end.end.signal != 0 || end.end.ok()) return std::nullopt;
  if (const auto error = run::read_error(run.error(end.rank))) return error->fault;
  if (job.is_ours() && is_fault(end.end.exit_status)) {
    return fault_of(end.end.exit_status);
  }
  return std::nullopt;
}

bool is_consequence(const run::RunDirectory& run, const Job& job, const RankEnd& end) {
  return end.hang.empty() && known_fault(run, job, end) == Fault::comm;
}

int exit_of_failure(const run::RunDirectory& run, const Job& job, const RankEnd& end) {
  if (!end.hang.empty() || end.early || end.left != 0) return kExitFailed;
  if (end.end.signal != 0) return 128 + end.end.signal;
  const auto fault = known_fault(run, job, end);
  return fault ? shell_status(*fault) : kExitFailed;
}

// Judges a job in which no rank failed: all were stopped, by a signal or by themselves.
JobResult judge_stop(const run::RunDirectory& run, const Job& job,
                     std::vector<RankEnd> ends) {
  const auto is = [&](Ending wanted) {
    return std::find_if(ends.begin(), ends.end(), [&](const RankEnd& end) {
      return ending_of(job, end) == wanted;
    });
  };
  if (const auto killed = is(Ending::killed); killed != ends.end()) {
    const int number = killed->asked_by;
    auto message =
        str("rank ", killed->rank, " was killed after ", process::signal_name(number),
            ", before it had stopped on its own");
    return {.state = RunStatus::stopped,
            .exit = run::exit_of_stop(run, job.resumes, number),
            .message = std::move(message),
            .ends = std::move(ends)};
  }
  const int status = is(Ending::stopped)->end.shell_status();
  const int exit = status == kExitStopped
                       ? status
                       : run::exit_of_stop(run, job.resumes, status - 128);
  auto message = exit == kExitStopped
                     ? "stopped by request; resumable"
                     : str("stopped by ", process::signal_name(exit - 128));
  return {.state = RunStatus::stopped,
          .exit = exit,
          .message = std::move(message),
          .ends = std::move(ends)};
}

}  // namespace

Ending ending_of(const Job& job, const RankEnd& end) {
  if (!end.hang.empty() || end.early || end.left != 0) return Ending::failed;
  if (end.end.ok() || is_unprinted(job, end.end)) return Ending::well;
  if (end.killed) return Ending::killed;
  if (end.told && (is_answer_to(SIGTERM, end.end) || is_clean_stop(end.end))) {
    return Ending::told;
  }
  // Our worker ends like this only when all ranks have agreed to stop, whichever was
  // signalled.
  const bool clean = job.is_ours() && is_clean_stop(end.end);
  return clean || is_answer_to(end.asked_by, end.end) ||
                 (end.asked_by != 0 && is_clean_stop(end.end))
             ? Ending::stopped
             : Ending::failed;
}

std::optional<std::size_t> first_failure(const run::RunDirectory& run, const Job& job,
                                         std::span<const RankEnd> ends) {
  // A crashed rank has left no error file, hence time 0, and comes before those that
  // had the time to write one.
  const auto order = [&](const RankEnd& end) {
    const auto error = run::read_error(run.error(end.rank));
    return std::tuple(is_consequence(run, job, end), end.time,
                      error ? error->time : 0.0);
  };
  std::optional<std::size_t> first;
  for (std::size_t i = 0; i < ends.size(); ++i) {
    if (ending_of(job, ends[i]) != Ending::failed) continue;
    if (!first || order(ends[i]) < order(ends[*first])) first = i;
  }
  return first;
}

bool is_retryable(const run::RunDirectory& run, const Job& job, const RankEnd& end) {
  const auto fault = known_fault(run, job, end);
  return end.left == 0 && fault != Fault::config && fault != Fault::diverged;
}

JobResult judge(const run::RunDirectory& run, const Job& job,
                std::vector<RankEnd> ends) {
  const auto stopping = [](const RankEnd& end) { return end.asked_by != 0; };
  if (!ends.empty() && !ends[0].lost_to.empty()) {
    auto message = str("the run was taken over by ", ends[0].lost_to);
    return {.state = RunStatus::failed,
            .exit = kExitFailed,
            .message = std::move(message),
            .ends = std::move(ends)};
  }
  if (!ends.empty() && ends[0].homeless) {
    return {.state = RunStatus::failed,
            .exit = shell_status(Fault::io),
            .message = str("the run directory ", run.path().string(), " is gone"),
            .ends = std::move(ends),
            .fault = Fault::io};
  }
  const auto first = first_failure(run, job, ends);
  // Ranks that were asked to stop may lose each other on the way.
  const bool lost_in_stop = first && is_consequence(run, job, ends[*first]) &&
                            std::any_of(ends.begin(), ends.end(), stopping) &&
                            ends.size() > 1;
  if (lost_in_stop) {
    const int number = std::find_if(ends.begin(), ends.end(), stopping)->asked_by;
    return {.state = RunStatus::stopped,
            .exit = run::exit_of_stop(run, job.resumes, number),
            .message = str("stopped by ", process::signal_name(number)),
            .ends = std::move(ends)};
  }
  if (first) {
    const int exit = exit_of_failure(run, job, ends[*first]);
    const auto fault = known_fault(run, job, ends[*first]);
    auto message = failure_report(run, job, {.ends = ends, .first = *first});
    return {.state = RunStatus::failed,
            .exit = exit,
            .message = std::move(message),
            .ends = std::move(ends),
            .fault = fault};
  }
  const auto well = [&](const RankEnd& end) {
    return ending_of(job, end) == Ending::well;
  };
  if (std::all_of(ends.begin(), ends.end(), well)) {
    const bool printed = std::none_of(ends.begin(), ends.end(), [&](const auto& end) {
      return is_unprinted(job, end.end);
    });
    return {.state = RunStatus::done,
            .exit = printed ? kExitOk : kExitEnvironment,
            .message = "",
            .ends = std::move(ends)};
  }
  return judge_stop(run, job, std::move(ends));
}

}  // namespace lockstep::launcher
