#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

#include "lockstep/base/clock.h"
#include "lockstep/base/error.h"
#include "lockstep/base/process.h"
#include "lockstep/launcher/hang.h"
#include "lockstep/launcher/log_pump.h"
#include "lockstep/launcher/placement.h"
#include "lockstep/launcher/signals.h"
#include "lockstep/run/rank_environment.h"
#include "lockstep/run/run_directory.h"

namespace lockstep::launcher {

inline constexpr std::chrono::milliseconds kGracePeriod{30'000};
inline constexpr std::chrono::hours kLongestGracePeriod{24};

// The status of a worker that has trained to the end, and whose result could not be
// printed: the run is done.
inline constexpr int kExitUnprinted = 74;

// The time that a rank that beats may take to end once another one has failed: it can
// not go on, and what it could save is as old as the last step.
inline constexpr std::chrono::milliseconds kGraceAfterFailure{5'000};

struct RankOptions {
  RankPlacement place;                       // its CPUs and its OMP_NUM_THREADS
  StdStreams console = StdStreams::nothing;  // streams also shown on the terminal
  // If set, streams are inherited and not captured: rank 0 of `lockstep train` draws
  // the progress line.
  bool owns_terminal = false;
  // The GPUs that it computes on, as CUDA counts them here; nothing: it may be any.
  std::optional<std::vector<int>> gpus = {};
};

// The ranks of this machine, and how they are looked after.
struct Job {
  std::vector<std::string> command;  // program and arguments, the same for every rank
  std::vector<std::pair<std::string, std::string>> environment;  // added for every rank
  // The first rank of this machine; the others count up from it. Left open and filled
  // in when nodes == 1: master_address (127.0.0.1), master_port (a free one, held as
  // long as the job runs) and token (random). local_world_size is that of `ranks`.
  run::RankEnvironment first;
  std::vector<RankOptions> ranks;
  // The time that ranks may take to stop after they were asked to; then they are
  // killed. At most kLongestGracePeriod.
  std::chrono::milliseconds grace = kGracePeriod;
  std::chrono::milliseconds monitor_interval{100};  // between looks at the heartbeat
  // The first wait before a restart; it doubles, up to 30 times this.
  std::chrono::milliseconds restart_delay{1'000};
  // If set, ranks beat (HeartbeatWriter on run.heartbeat(), which LOCKSTEP_HEARTBEAT
  // names to them) and one that stands still, or ends with status 0 before it has
  // finished, has failed. With a startup limit of 0 this holds for those that have
  // begun to beat, and any program may run. Not set: beats are not looked at.
  std::optional<HangLimits> hang_limits;
  // Returns whether every rank is a worker of ours: it beats from its start on, means
  // by its exit status what our faults mean, and knows what to do with a signal.
  bool is_ours() const { return hang_limits && hang_limits->startup.count() > 0; }
  // True if a rerun of the same command would resume where a checkpoint exists: then a
  // stop by a signal of a scheduler has the exit status 75.
  bool resumes = false;
  // Returns which process has taken over this run since it was started, "" while it is
  // ours; may be empty. See run::RunLock.
  std::function<std::string()> lost_to;
  // A descriptor that the guard process keeps open until nothing of the job is left;
  // -1: none. It is the lock of the run, so that no process gets it before.
  int lock = -1;
  // Gets one sentence for the user at the terminal; may be empty.
  std::function<void(std::string_view)> say;
  // Gets captured lines for the terminal; empty: standard output and standard error.
  LogPump::Show show;
  const Clock* clock = &Clock::system();
};

// The end of a rank, and the launcher's part in it.
struct RankEnd {
  int rank = 0;
  int local_rank = 0;
  pid_t pid = 0;
  process::End end;
  double time = 0;        // when it was seen, seconds since 1970
  int asked_by = 0;       // the first signal that asked the job to stop, else 0
  bool told = false;      // to end, because another rank had failed
  bool killed = false;    // by us, since it did not stop or was told to quit at once
  std::string hang;       // why it counted as hanging and was killed, else ""
  bool early = false;     // status 0, but its heartbeat does not say it had finished
  char left = 0;          // its state, if it did not even die of SIGKILL
  std::string lost_to;    // the process that has taken over the run, else ""
  bool homeless = false;  // killed, because the run directory was gone
};

struct JobResult {
  run::RunStatus state = run::RunStatus::failed;
  int exit = 1;               // for the shell
  std::string message;        // why, when it is not done
  std::vector<RankEnd> ends;  // of the last attempt, by local rank
  int restarts = 0;
  std::optional<Fault> fault = {};  // of the rank that failed first, where it is known
};

// Runs the ranks to their end, and keeps run.json at running, stopping and its final
// state and events.jsonl at what happened.
//
// Each rank leads a process group of its own and gets the whole environment of a
// torchrun worker. Its output goes to run.log(rank), unless it owns the terminal.
//
// The first SIGINT, SIGTERM and SIGHUP are passed on to all ranks, which stop after
// their step; a second SIGINT kills them at once, if it is not the echo of the first
// (300 ms); SIGUSR1 and SIGUSR2 are always passed on.
//
// When one rank fails, or hangs, the others are told to end (SIGTERM), then killed;
// then all are started again, up to first.max_restarts times, unless the fault can not
// get better (config, diverged). The message names the rank that failed first. Workers
// of ours whose run directory is gone are killed: their results could not be kept.
//
// When this returns no process of the job is left, however it was started by the ranks,
// unless it has cleared its environment. When this process dies, however that happens,
// a guard process sees to the same within a moment.
//
// Throws Fault::hardware if the program is not there, Fault::io if it does not start
// and Fault::config if the port is taken; run.json then says failed.
JobResult run_job(const run::RunDirectory& run, const Job& job, Signals& signals);

}  // namespace lockstep::launcher
