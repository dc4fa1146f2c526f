#pragma once

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include "lockstep/config/config.h"
#include "lockstep/jobs/caller.h"

namespace lockstep::jobs {

// Hands the offline runs of W&B in a run directory to `wandb sync` now and then, where
// sync_wandb() would: for as long as it lives. No thread waits for that, and its
// outcome is not reported; a sync under way at the end is broken off.
//
// Threads: has one of its own. Make it after launcher::Signals.
class WandbSync {
 public:
  WandbSync(const std::filesystem::path& run, const config::MonitorConfig& config,
            const Caller& caller);

 private:
  void loop(const std::stop_token& stop) const;

  const std::filesystem::path run_;
  const std::chrono::milliseconds every_;
  std::jthread thread_;  // last: ends before what it uses
};

// Hands the offline runs of W&B in a run directory to `wandb sync` if WANDB_API_KEY is
// set. Returns the outcome as a sentence; "" if there was nothing to do.
std::string sync_wandb(const std::filesystem::path& run, const Caller& caller);

}  // namespace lockstep::jobs
