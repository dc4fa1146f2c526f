#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "lockstep/cli/command.h"
#include "lockstep/config/load.h"
#include "lockstep/planner/plan.h"

namespace lockstep::cli {

// The recipe with everything the command line says: options become knobs, --debug last
// and only where the person said nothing.
config::Loaded wanted_config(const Arguments& arguments, const Context& context);

// The program of a rank, beside ours; Fault::hardware if it is not there.
std::filesystem::path find_worker(const Context& context);

// How many are started for the ranks: with data_parallel they are threads of one.
int processes(const config::ParallelConfig& parallel);

// Hands the offline runs of W&B in a run directory to `wandb sync` now and then, where
// sync_wandb() would: for as long as it lives. Nobody waits for that, and what comes of
// it is not said; a sync under way at the end is broken off.
//
// Threads: has one of its own. Make it after launcher::Signals.
class WandbSync {
 public:
  WandbSync(const std::filesystem::path& run, const config::MonitorConfig& config,
            const Context& context);

 private:
  void loop(const std::stop_token& stop) const;

  const std::filesystem::path run_;
  const std::chrono::milliseconds every_;
  std::jthread thread_;  // last: ends before what it uses
};

// Hands the offline runs of W&B in a run directory to `wandb sync` if WANDB_API_KEY is
// set, and says on context.err what came of it.
void sync_wandb(const std::filesystem::path& run, Context& context);

// One line for every choice of the planner, with its reason.
std::string plan_text(const planner::Plan& plan, bool color);

}  // namespace lockstep::cli
