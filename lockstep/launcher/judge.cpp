// What the end of a rank means for the run, the person and the shell.
#include <algorithm>

#include <signal.h>

#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/launcher/launcher.h"
#include "lockstep/monitor/error_file.h"

namespace lockstep::launcher {
namespace {

using monitor::RunState;

// The signals a rank answers with a clean stop and the exit status 128 + signal.
bool is_stop_signal(int number) {
  return number == SIGINT || number == SIGTERM || number == SIGHUP || number == SIGUSR1;
}

std::string last_lines(const files::Path& path) {
  constexpr std::int64_t kTailBytes = 8 << 10;
  constexpr std::size_t kLines = 8;
  std::string tail;
  try {
    tail = files::read_tail(path, kTailBytes);
  } catch (const Error&) {
    return "";  // the log is a help, not the point
  }
  auto lines = text::split(text::trim(tail), '\n');
  if (lines.size() > kLines) lines.erase(lines.begin(), lines.end() - kLines);
  const auto text = text::join(lines, "\n  ");
  return text.empty() ? "" : str("; last lines of its log:\n  ", text);
}

bool is_fault(int exit_status_of_worker) {
  const auto fault = fault_of(exit_status_of_worker);
  return exit_status(fault) == exit_status_of_worker;
}

RunResult stopped(const WorkerEnd& worker, int exit, std::string message) {
  return {.state = RunState::stopped,
          .exit = exit,
          .message = std::move(message),
          .worker = worker};
}

RunResult failed(const WorkerEnd& worker, int exit, std::string message) {
  return {.state = RunState::failed,
          .exit = exit,
          .message = std::move(message),
          .worker = worker};
}

RunResult judge_signal(const monitor::RunDirectory& run, const WorkerEnd& worker) {
  const int number = worker.end.signal;
  if (worker.killed) {
    return stopped(
        worker, 128 + worker.asked_by,
        str("rank ", worker.rank, " was killed after ", signal_name(worker.asked_by),
            ", before it had stopped by itself"));
  }
  // Asked before it could answer: as good as a clean stop.
  if (number == worker.asked_by) {
    return stopped(worker, 128 + number, str("stopped by ", signal_name(number)));
  }
  const std::string guess =
      number == SIGKILL ? ", often by the kernel for want of memory" : "";
  return failed(worker, 128 + number,
                str("rank ", worker.rank, " ended by ", process::describe(worker.end),
                    guess, last_lines(run.log(worker.rank))));
}

RunResult judge_exit(const monitor::RunDirectory& run, const WorkerEnd& worker) {
  const int status = worker.end.exit_status;
  if (status == kExitStopped) {
    return stopped(worker, status, "stopped by request; a rerun resumes");
  }
  if (status > 128 && is_stop_signal(status - 128)) {
    return stopped(worker, status, str("stopped by ", signal_name(status - 128)));
  }
  const int exit = is_fault(status) ? shell_status(fault_of(status)) : kExitFailed;
  if (const auto error = monitor::read_error(run.error(worker.rank))) {
    return failed(worker, exit, error->message);
  }
  return failed(worker, exit,
                str("rank ", worker.rank, " ended with ", process::describe(worker.end),
                    last_lines(run.log(worker.rank))));
}

}  // namespace

RunResult judge(const monitor::RunDirectory& run, const WorkerEnd& worker) {
  if (worker.end.ok()) {
    return {.state = RunState::done, .exit = kExitOk, .message = "", .worker = worker};
  }
  return worker.end.signal != 0 ? judge_signal(run, worker) : judge_exit(run, worker);
}

}  // namespace lockstep::launcher
