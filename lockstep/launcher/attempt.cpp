#include "lockstep/launcher/detail/attempt.h"

#include <algorithm>

#include <poll.h>
#include <signal.h>

#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/base/text.h"
#include "lockstep/base/units.h"
#include "lockstep/launcher/detail/judge.h"
#include "lockstep/launcher/detail/sweep.h"

namespace lockstep::launcher {
namespace {

using run::Phase;
using run::RunStatus;
using std::chrono::milliseconds;

// A terminal, or timeout(1), may send the same signal to a process and to its group:
// two that come closer together than a user presses keys are one.
constexpr milliseconds kOnePress{300};

// Data in the pipes is read in any case; this is for a process that outlived the sweep
// and a terminal that stands still.
constexpr milliseconds kLastLines{2'000};

// The time in which a process should die of SIGKILL. One that waits inside the kernel,
// for a disk or a driver, does not die at all.
constexpr milliseconds kDying{5'000};
constexpr milliseconds kLastPress{1'000};

std::vector<GpuWatch::GpusOfRank> gpus_of(const Job& job) {
  std::vector<GpuWatch::GpusOfRank> gpus;
  for (const auto& rank : job.ranks) gpus.push_back(rank.gpus);
  return gpus;
}

}  // namespace

Attempt::Attempt(const AttemptContext& scene, int number)
    : scene_(scene), gpus_(gpus_of(scene.job), scene.clock) {
  const auto& job = scene_.job;
  for (std::size_t i = 0; i < job.ranks.size(); ++i) {
    start_rank(static_cast<int>(i), number);
  }
  if (scene_.hang != nullptr) {
    scene_.hang->start_again();
    next_look_ = scene_.clock.now();
  }
  if (job.lost_to || beats()) next_run_look_ = scene_.clock.now();
}

Attempt::~Attempt() {
  ranks_.clear();  // kills and reaps what still runs
  if (!swept_) sweep(scene_.mark);
}

void Attempt::start_rank(int local_rank, int number) {
  const auto& options = scene_.job.ranks[static_cast<std::size_t>(local_rank)];
  const auto how = options.owns_terminal ? process::StreamMode::inherit  //
                                         : process::StreamMode::pipe;
  auto child =
      process::Child::start({.arguments = scene_.job.command,
                             .environment = rank_variables(scene_, local_rank, number),
                             .directory = {},
                             .out = how,
                             .err = how,
                             .own_group = true,
                             .cpus = options.place.cpus});
  RankEnd end;
  end.local_rank = local_rank;
  end.rank = scene_.job.first.rank + local_rank;
  end.pid = child.pid();
  if (!options.owns_terminal) {
    const bool several = scene_.job.first.world_size > 1;
    scene_.pump->add({.out = std::move(child.out()),
                      .err = std::move(child.err()),
                      .log = scene_.run.log(end.rank),
                      .shown = options.console,
                      .prefix = several ? str("[rank", end.rank, "]: ") : ""});
  }
  ranks_.push_back({.child = std::move(child), .end = std::move(end)});
  ++running_;
}

std::vector<RankEnd> Attempt::until_end() {
  while (running_ > 0) {
    wait_for_something();
    while (const auto number = scene_.signals.take()) receive(*number);
    reap();
    if (running_ == 0) break;
    look_for_hang();
    look_after_run();
    if (deadline_ && scene_.clock.now() >= *deadline_) {
      is_dying_ ? abandon() : give_up();
    }
  }
  sweep_up();
  std::vector<RankEnd> ends;
  for (auto& rank : ranks_) ends.push_back(rank.end);
  return ends;
}

// Waits for a signal, the end of a rank, the deadline, or the next look at heartbeats.
void Attempt::wait_for_something() {
  std::vector<pollfd> ready{
      {.fd = scene_.signals.fd(), .events = POLLIN, .revents = 0}};
  for (const auto& rank : ranks_) {
    if (!rank.running) continue;
    ready.push_back({.fd = rank.child.pidfd(), .events = POLLIN, .revents = 0});
  }
  ::poll(ready.data(), ready.size(), wait_limit_ms());
}

int Attempt::wait_limit_ms() const {
  const auto has_none = [](const Rank& rank) { return rank.child.pidfd() < 0; };
  // Without a pidfd (kernels before 5.3) look at the ranks every 20 ms.
  milliseconds limit = std::any_of(ranks_.begin(), ranks_.end(), has_none)
                           ? milliseconds(20)
                           : milliseconds::max();
  for (const auto& time : {deadline_, next_look_, next_run_look_}) {
    if (!time) continue;
    const auto left = std::chrono::ceil<milliseconds>(*time - scene_.clock.now());
    limit = std::min(limit, std::max(left, milliseconds(0)));
  }
  if (limit == milliseconds::max()) return -1;
  return static_cast<int>(std::min<long>(limit.count(), 1 << 30));
}

// Reaps all ranks that have ended by now, at the same moment. One that was looked at
// just before it died may be why another has ended: it is looked at again.
void Attempt::reap() {
  const double time = unix_seconds(scene_.clock.wall());
  while (reap_once(time)) {
  }
  if (told_) return;
  for (const auto& rank : ranks_) {
    if (!rank.running && ending_of(scene_.job, rank.end) == Ending::failed) {
      return fail(rank);
    }
  }
  pass_on_stop();
}

// Returns whether a rank has ended since the last call.
bool Attempt::reap_once(double time) {
  const int before = running_;
  for (auto& rank : ranks_) {
    if (!rank.running) continue;
    pollfd ended{.fd = rank.child.pidfd(), .events = POLLIN, .revents = 0};
    // While the rank is dead but not reaped its group's number is still its own:
    // whatever it started goes with it.
    if (ended.fd >= 0 && ::poll(&ended, 1, 0) <= 0) continue;
    if (ended.fd >= 0) rank.child.signal(SIGKILL);
    if (const auto end = rank.child.poll()) finish(rank, *end, time);
  }
  return running_ < before;
}

// Asks the others to stop when a rank of ours was asked by another process, and has
// stopped: they may wait for it, if they had not met yet.
void Attempt::pass_on_stop() {
  if (running_ == 0 || asked_by_ != 0 || !beats()) return;
  for (const auto& rank : ranks_) {
    if (rank.running || ending_of(scene_.job, rank.end) != Ending::stopped) continue;
    const int status = rank.end.end.shell_status();
    return stop(status == kExitStopped ? SIGTERM : status - 128);
  }
}

void Attempt::finish(Rank& rank, const process::End& end, double time) {
  rank.running = false;
  --running_;
  rank.end.end = end;
  rank.end.time = time;
  rank.end.asked_by = asked_by_;
  // Schedulers announce the end of a job by SIGUSR1; other programs use it for other
  // things.
  if (asked_by_ == 0 && user_asked_ &&
      (end.shell_status() == 128 + SIGUSR1 || end.exit_status == kExitStopped)) {
    rank.end.asked_by = SIGUSR1;
  }
  rank.end.early = is_early(rank, end);
}

// Ranks of ours end together. A single one may be any stand-in for a worker, and no
// rank waits for it.
bool Attempt::is_early(const Rank& rank, const process::End& end) {
  const auto& limits = scene_.job.hang_limits;
  if (!limits || scene_.job.first.world_size <= 1 || !end.ok()) return false;
  if (asked_by_ != 0 || told_) return false;
  const auto* file = heartbeat();
  const auto beat = file != nullptr ? file->read(rank.end.rank) : std::nullopt;
  if (!beat) return scene_.job.hang_limits->startup.count() > 0;
  return beat->phase != Phase::finished && beat->phase != Phase::stopping;
}

// Tells the others to end: they can not go on without it.
void Attempt::fail(const Rank& failed) {
  told_ = true;
  bool others = false;
  for (auto& rank : ranks_) {
    if (!rank.running || &rank == &failed) continue;
    others = true;
    // One that is ending already does not end for our signal: its peers may have seen
    // it before we could wait for it, and `failed` be the first of them.
    rank.end.told = !is_ending(rank.end.pid);
    rank.child.signal(SIGTERM);
    rank.child.signal(SIGCONT);  // one that is stopped hears nothing else
  }
  if (others) {
    scene_.notes.say(str("rank ", failed.end.rank,
                         failed.running ? " hangs" : " has failed",
                         "; the other ranks get SIGTERM"));
  }
  allowed_ =
      beats() ? std::min(scene_.job.grace, kGraceAfterFailure) : scene_.job.grace;
  const auto until = scene_.clock.now() + allowed_;
  deadline_ = deadline_ ? std::min(*deadline_, until) : until;
}

void Attempt::receive(int number) {
  switch (number) {
    case SIGINT:
      return interrupt();
    case SIGTERM:
    case SIGHUP:
      return stop(number);
    case SIGTSTP:
      return pause();
    default:
      user_asked_ = user_asked_ || number == SIGUSR1;
      for (auto& rank : ranks_) rank.child.signal(number);
  }
}

// Only a user is in a hurry: schedulers repeat SIGTERM without meaning more by it.
void Attempt::interrupt() {
  const auto now = scene_.clock.now();
  if (!interrupted_) {
    interrupted_ = now;
    stop(SIGINT);
  } else if (now - *interrupted_ >= kOnePress) {
    quit();
  }
}

void Attempt::stop(int number) {
  if (!passed_on_.insert(number).second) return;
  // It is written before they know of it, so that what they write comes later.
  if (asked_by_ == 0)
    scene_.notes.event("stopping", {{"signal", process::signal_name(number)}});
  for (auto& rank : ranks_) {
    rank.child.signal(number);
    rank.child.signal(SIGCONT);  // one that is stopped hears nothing else
  }
  if (asked_by_ != 0) return;
  asked_by_ = number;
  if (!deadline_) {
    allowed_ = scene_.job.grace;
    deadline_ = scene_.clock.now() + allowed_;
  }
  const auto name = process::signal_name(number);
  scene_.notes.state(RunStatus::stopping, name);
  scene_.notes.say(str(beats() ? "stopping after this step (" : "stopping (", name, ")",
                       number == SIGINT ? "; a second one quits at once" : ""));
}

void Attempt::kill_running() {
  for (auto& rank : ranks_) {
    if (!rank.running) continue;
    rank.end.killed = true;
    rank.child.signal(SIGKILL);
  }
  is_dying_ = true;
  deadline_ = scene_.clock.now() + kDying;
}

void Attempt::quit() {
  const auto is_killed = [](const Rank& rank) {
    return !rank.running || rank.end.killed;
  };
  if (std::all_of(ranks_.begin(), ranks_.end(), is_killed)) {
    // A user who keeps pressing does not wait for long, but the kernel has its moment.
    if (deadline_) deadline_ = std::min(*deadline_, scene_.clock.now() + kLastPress);
    return;
  }
  kill_running();
  scene_.notes.say("quitting at once (second SIGINT)");
}

// A process that does not die of SIGKILL can not be ended, and waiting does not help.
void Attempt::abandon() {
  deadline_.reset();
  reap();
  const double time = unix_seconds(scene_.clock.wall());
  for (auto& rank : ranks_) {
    if (!rank.running) continue;
    rank.end.left = process_state(rank.end.pid);
    rank.child.leave();
    finish(rank, {.exit_status = 0, .signal = SIGKILL}, time);
    scene_.notes.say(str("rank ", rank.end.rank, " (pid ", rank.end.pid,
                         ") cannot be killed (state ", rank.end.left,
                         "); it is left behind, and ends when the kernel lets it go"));
  }
}

void Attempt::give_up() {
  std::vector<std::string> late;
  for (const auto& rank : ranks_) {
    if (rank.running && !rank.end.killed) late.push_back(str(rank.end.rank));
  }
  kill_running();
  if (late.empty()) return;
  scene_.notes.say(str(late.size() > 1 ? "ranks " : "rank ", text::join(late, ", "),
                       " did not stop within ", units::exact_duration(allowed_),
                       "; killed"));
}

// Handles Ctrl-Z: ranks have their own groups, so the terminal does not stop them.
void Attempt::pause() {
  for (auto& rank : ranks_) rank.child.signal(SIGSTOP);
  ::raise(SIGSTOP);
  for (auto& rank : ranks_) rank.child.signal(SIGCONT);
}

void Attempt::sweep_up() {
  if (!sweep(scene_.mark)) {
    std::vector<std::string> left;
    for (const auto pid : processes_with(scene_.mark)) left.push_back(str(pid));
    if (!left.empty()) {
      scene_.notes.say(str("processes of the job that cannot be killed are left: ",
                           text::join(left, ", ")));
    }
  }
  swept_ = true;
  if (scene_.pump != nullptr) scene_.pump->finish(kLastLines);
}

}  // namespace lockstep::launcher
