#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/clock.h"
#include "lockstep/base/process.h"
#include "lockstep/launcher/signals.h"
#include "lockstep/monitor/run_directory.h"

namespace lockstep::launcher {

inline constexpr std::chrono::milliseconds kGracePeriod{30'000};
inline constexpr std::chrono::hours kLongestGracePeriod{24};

// How a rank is started.
struct WorkerCommand {
  std::filesystem::path program;
  std::vector<std::string> arguments;
  std::vector<std::pair<std::string, std::string>> environment;  // added to ours
  int rank = 0;
  // How long a rank may take to stop after it was asked to; then it is killed. At most
  // kLongestGracePeriod.
  std::chrono::milliseconds grace = kGracePeriod;
  // One sentence for the person at the terminal; may be empty.
  std::function<void(std::string_view)> say;
};

struct WorkerEnd {
  int rank = 0;
  process::End end;
  int asked_by = 0;     // the first signal that asked it to stop, else 0
  bool killed = false;  // by us, since it did not stop or was told to quit at once
};

struct RunResult {
  monitor::RunState state = monitor::RunState::failed;
  int exit = 1;         // for the shell
  std::string message;  // why, when it is not done
  WorkerEnd worker;
};

// Runs a rank to its end, in a process group of its own, and keeps run.json at running,
// stopping and its final state.
//
// The first SIGINT, SIGTERM and SIGHUP are passed on and the rank stops after its step;
// a second SIGINT kills it at once, if it is not the echo of the first (300 ms);
// SIGUSR1 and SIGUSR2 are always passed on. When this process dies, the kernel kills
// the rank.
//
// Throws Fault::hardware if the program is not there and Fault::io if it does not
// start; run.json then says failed.
RunResult run_worker(const monitor::RunDirectory& run, const WorkerCommand& command,
                     Signals& signals, const Clock& clock = Clock::system());

// What the end of a rank means, and what it said itself (its error file, else the end
// of its log).
RunResult judge(const monitor::RunDirectory& run, const WorkerEnd& worker);

}  // namespace lockstep::launcher
