#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "lockstep/base/files.h"
#include "lockstep/launcher/job.h"
#include "lockstep/launcher/log_pump.h"
#include "lockstep/launcher/placement.h"
#include "lockstep/run/rank_environment.h"

namespace lockstep::launcher {

struct SpawnOptions {
  // The place of the run directory with the logs. "": a temporary one, which is removed
  // when all went well and named when not.
  files::Path directory;
  StdStreams console = StdStreams::both;  // streams of every rank shown on the terminal
  Binding binding = Binding::none;
  int max_restarts = 0;
  std::chrono::milliseconds grace = kGracePeriod;
  std::vector<std::pair<std::string, std::string>> environment;  // added for every rank
  // Gets a sentence for the user at the terminal; empty: standard error.
  std::function<void(std::string_view)> say;
  LogPump::Show show;  // empty: standard output and standard error
};

// Calls `function` in `world_size` processes of this program, each with its rank, waits
// for them and returns the status for main() to return: 0 when all of them came back,
// else that of the rank that failed first, after its report has been printed.
//
//   int main(int, char**) {
//     return launcher::spawn(4, train);
//   }
//
// Each rank is this executable, started anew with the same arguments: it runs through
// main() up to this call, which there calls `function` and returns its status. Code
// before the call thus runs in every process, and code behind it too: return. An Error
// becomes its fault's status, any other exception kExitFailed, and both are reported
// with their text.
//
// Ctrl-C and SIGTERM are passed on to the ranks. No rank outlives this process, however
// it ends.
//
// Throws Fault::config if world_size is less than 1, or if a rank comes here a second
// time.
// Threads: call it before there are others, so that signals reach it.
int spawn(int world_size,
          const std::function<void(const run::RankEnvironment&)>& function,
          const SpawnOptions& options = {});

}  // namespace lockstep::launcher
