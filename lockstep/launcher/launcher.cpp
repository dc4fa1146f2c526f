#include "lockstep/launcher/launcher.h"

#include <algorithm>
#include <array>
#include <optional>
#include <set>

#include <poll.h>
#include <signal.h>

#include "lockstep/base/error.h"
#include "lockstep/base/units.h"

namespace lockstep::launcher {
namespace {

using monitor::RunState;

// A terminal, or timeout(1), may send the same signal to a process and to its group:
// two that come closer together than a person presses keys are one.
constexpr std::chrono::milliseconds kOnePress{300};

// A rank and what has been asked of it.
class Watch {
 public:
  Watch(const monitor::RunDirectory& run, const WorkerCommand& command,
        process::Child child, const Clock& clock)
      : run_(run), command_(command), child_(std::move(child)), clock_(clock) {
    worker_.rank = command.rank;
  }

  WorkerEnd until_end(Signals& signals) {
    while (true) {
      const bool ended = wait_for_something(signals);
      while (const auto number = signals.take()) receive(*number);
      // While the rank is dead but not reaped its group's number is still its own:
      // whatever it started goes with it.
      if (ended) child_.signal(SIGKILL);
      const auto end = ended || child_.pidfd() < 0 ? child_.poll() : std::nullopt;
      if (end) {
        worker_.end = *end;
        return worker_;
      }
      if (deadline_ && clock_.now() >= *deadline_) give_up();
    }
  }

 private:
  // A signal, the end of the rank (true) or the deadline.
  bool wait_for_something(const Signals& signals) {
    std::array<pollfd, 2> ready{
        {{.fd = signals.fd(), .events = POLLIN, .revents = 0},
         {.fd = child_.pidfd(), .events = POLLIN, .revents = 0}}};
    // Without a pidfd (kernels before 5.3) look at the child every 20 ms.
    int limit_ms = child_.pidfd() >= 0 ? -1 : 20;
    if (deadline_) {
      const auto left =
          std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - clock_.now());
      const auto left_ms = static_cast<int>(std::clamp<long>(left.count(), 0, 1 << 30));
      limit_ms = limit_ms < 0 ? left_ms : std::min(limit_ms, left_ms);
    }
    return ::poll(ready.data(), ready.size(), limit_ms) > 0 && ready[1].revents != 0;
  }

  void receive(int number) {
    switch (number) {
      case SIGINT:
        return interrupt();
      case SIGTERM:
      case SIGHUP:
        return stop(number);
      case SIGTSTP:
        return pause();
      default:
        child_.signal(number);
    }
  }

  // Only a person is in a hurry: schedulers repeat SIGTERM without meaning more by it.
  void interrupt() {
    const auto now = clock_.now();
    if (!interrupted_) {
      interrupted_ = now;
      stop(SIGINT);
    } else if (now - *interrupted_ >= kOnePress) {
      quit();
    }
  }

  void stop(int number) {
    if (!passed_on_.insert(number).second) return;
    child_.signal(number);
    if (worker_.asked_by != 0) return;
    worker_.asked_by = number;
    deadline_ = clock_.now() + command_.grace;
    note_stopping(number);
    say(str("stopping after this step (", signal_name(number), ")",
            number == SIGINT ? "; a second one quits at once" : ""));
  }

  void quit() {
    if (worker_.killed) return;
    worker_.killed = true;
    child_.signal(SIGKILL);
    say("quitting at once (second SIGINT)");
  }

  void give_up() {
    deadline_.reset();
    if (worker_.killed) return;
    worker_.killed = true;
    child_.signal(SIGKILL);
    say(str("rank ", worker_.rank, " did not stop within ",
            units::exact_duration(command_.grace), "; killed"));
  }

  // Ctrl-Z: the rank has a group of its own, so the terminal does not stop it for us.
  void pause() {
    child_.signal(SIGSTOP);
    ::raise(SIGSTOP);
    child_.signal(SIGCONT);
  }

  // A record that can not be written (full disk) must not end a run that still
  // computes.
  void note_stopping(int number) {
    try {
      run_.update_record(RunState::stopping, std::nullopt, signal_name(number));
    } catch (const Error& error) {
      say(error.what());
    }
  }

  void say(std::string_view sentence) const {
    if (command_.say) command_.say(sentence);
  }

  const monitor::RunDirectory& run_;
  const WorkerCommand& command_;
  process::Child child_;
  const Clock& clock_;
  WorkerEnd worker_;
  std::optional<SteadyTime> deadline_;
  std::optional<SteadyTime> interrupted_;  // by the first SIGINT
  std::set<int> passed_on_;                // what asked the rank to stop
};

process::Child start(const WorkerCommand& command) {
  if (!std::filesystem::exists(command.program)) {
    throw Error(Fault::hardware, "launcher: '", command.program.string(),
                "' is not there; build it, or copy it beside lockstep");
  }
  process::Command child{.arguments = {command.program.string()},
                         .environment = command.environment,
                         .directory = {},
                         .own_group = true};
  child.arguments.insert(child.arguments.end(), command.arguments.begin(),
                         command.arguments.end());
  // The rank leaves its error in the run directory and keeps quiet: we say it, once.
  child.environment.emplace_back("LOCKSTEP_LAUNCHER", "1");
  return process::Child::start(child);
}

}  // namespace

RunResult run_worker(const monitor::RunDirectory& run, const WorkerCommand& command,
                     Signals& signals, const Clock& clock) {
  // Before the rank exists: if this fails, there is nothing to clean up.
  run.update_record(RunState::running, std::nullopt, "");
  std::optional<process::Child> child;
  try {
    child.emplace(start(command));
  } catch (const Error& error) {
    run.update_record(RunState::failed, shell_status(error.fault()), error.what());
    throw;
  }
  Watch watch(run, command, std::move(*child), clock);
  auto result = judge(run, watch.until_end(signals));
  try {
    run.update_record(result.state, result.exit, result.message);
  } catch (const Error& error) {
    result.message += str(result.message.empty() ? "" : "\n", error.what());
  }
  return result;
}

}  // namespace lockstep::launcher
